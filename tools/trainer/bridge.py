"""The bridge: a torch model whose `forward` runs on ONNX Runtime, and which is otherwise untouched.

Only the attribute `forward` of the one instance is replaced, under the same signature. Parameters, hooks,
`save_pretrained`, DDP and DeepSpeed see the model that they always saw.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.autograd import Run, SplitStep, WholeStep, scaled
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.memory.planning import OverBudgetError
from fuseline.engine.model import Model
from fuseline.tools.trainer.call import Call, Random, Undecided, Unsuited, complete, read_call
from fuseline.tools.trainer.compiler import Compiler, Variant
from fuseline.tools.trainer.live_graphs import LiveGraphs, trained_in
from fuseline.tools.trainer.native import NativeStep
from fuseline.tools.trainer.own_forward import OwnForward, own_forward
from fuseline.tools.trainer.refusals import Fallback, Refusals
from fuseline.tools.trainer.report import Report, speed_against
from fuseline.tools.trainer.watch import moving_buffers
from fuseline.tools.trainer.ways import Way

__all__ = ["Bridge", "attach"]

_EVALUATING = "it was called in evaluation mode with gradients enabled (torch.no_grad() lets the graph do it)"
_DROPPING = "it was called in training mode without gradients (model.eval() lets the graph do it)"


def attach(model: nn.Module, compiler: Compiler, fallback: Fallback = "torch") -> Bridge:
    """Let the model run on ONNX Runtime from now on; a PEFT model through the model that it adapts."""
    target = _called(model)
    known = vars(target).get("forward")
    if isinstance(known, Bridge):
        known.detach()
    return Bridge(target, compiler, fallback)


def _called(model: nn.Module) -> Any:
    """Whose `forward` computes: a PEFT model calls the one that it adapts."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


class Bridge:
    """Stands for the `forward` of one model; made by `attach`."""

    def __init__(self, model: nn.Module, compiler: Compiler, fallback: Fallback) -> None:
        self.model = model
        self.__signature__ = inspect.signature(model.forward)
        self._own = OwnForward(model)
        self._graphs = LiveGraphs(model, compiler, self._own)
        self._refusals = Refusals(type(model).__name__, fallback)
        self._last: Run | None = None
        self._native: NativeStep | None = None
        self._loss_alone = False
        #: How often each way was taken: step, loss, split, evaluate, predict, torch.
        self.counts: Counter[str] = Counter()
        self._own.replace_by(self)

    @property
    def blocked(self) -> str | None:
        """Why the model runs in torch; None while it does not have to."""
        return self._refusals.blocked

    @property
    def native_refused(self) -> str | None:
        """Why the optimizer is not in the graph, though it was to be."""
        return self._refusals.native

    def stands_for(self, model: nn.Module) -> bool:
        """Whether a call of this model comes here."""
        return _called(model) is self.model

    def detach(self) -> None:
        """Give the model its own `forward` back."""
        self._own.restore()

    def refresh(self) -> None:
        """Look at the model anew: other settings, buffers or frozen weights are another graph."""
        self._graphs.refresh()
        if self._native is None:
            return
        if self._native.key != self._graphs.key(self._native.form):
            self.drop_native(f"{type(self.model).__name__} was changed after its whole step was made")
        else:
            self._native.look()

    def drop_native(self, reason: str) -> None:
        """From now on the optimizer is not in the graph; the native step is gone."""
        self._refusals.refuse_native(reason)
        self._native = None

    def detached(self) -> AbstractContextManager[None]:
        """Inside, the model runs in torch as it always did."""
        return self._own.restored()

    @contextmanager
    def loss_alone(self, chosen: bool = True) -> Iterator[None]:
        """Inside, a call that trains on labels returns the loss and no other output."""
        # Whoever hooks into the call may read any output.
        self._loss_alone = chosen and not self.model._forward_hooks
        try:
            yield
        finally:
            self._loss_alone = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return own_forward(memo[id(self.model)])

    def __reduce__(self) -> Any:
        return own_forward, (self.model,)

    # -- the call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        training = self.model.training
        # Gradients in evaluation mode, or dropout without gradients: the graphs are made for neither.
        if self.blocked is None and training != torch.is_grad_enabled():
            self._refusals.remark(_DROPPING if training else _EVALUATING)
        elif self.blocked is None:
            try:
                return self._on_graph(self._read(args, kwargs), training)
            except Undecided as reason:
                self._refusals.remark(str(reason))
            except Unsuited as reason:
                self._refusals.note(str(reason), training or reason.aloud)
            except OverBudgetError:  # torch would need more, not less
                raise
            except Exception as error:  # whatever exporting, compiling and running may raise
                self._refusals.block(error)
        self.counts["torch"] += 1
        return self._own(*args, **kwargs)

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        return read_call(self.__signature__, args, kwargs, getattr(self.model, "config", None))

    def _on_graph(self, call: Call, training: bool) -> Any:
        self._look()
        wanted = [name for name, tensor in call.tensors.items() if tensor.requires_grad] if training else []
        if wanted:
            raise Unsuited(f"the argument {wanted[0]!r} needs a gradient; the graph gives those of weights")
        way = self._graphs.way(call)
        if way.draws and not training:
            raise Random("it draws random numbers in evaluation")
        variant = self._variant(way.labelled, training)
        runners = self._graphs.ready(way, variant, call.tensors)
        facts = runners[0].model.facts
        feeds = complete(call.tensors, facts.interface.inputs)
        self._graphs.admit(way, variant, call, facts.interface)
        factor = self._graphs.factor(way, call) if way.labelled else 1.0
        outputs = [o for o in facts.interface.outputs if o not in facts.training.updates]
        if training:
            if way.labelled:
                self._graphs.check(way, call)
            results = self._train(way, runners, feeds, outputs, factor)
        else:
            self._graphs.check_evaluation(way, variant, call)
            results = runners[0](feeds, self._graphs.named(), outputs)
            if way.labelled:
                results["loss"] = scaled(results["loss"], factor)
        self.counts[variant] += 1
        assert way.template is not None
        loss = results.pop("loss") if way.labelled else None
        return way.template.fill(loss, None if variant == "loss" else list(results.values()))

    def compile(self, batch: Mapping[str, Any], native: Variant | None = None) -> None:
        """Make the graphs that calls with such a batch need, in training and in evaluation.

        `native` is the training graph with the optimizer in it, if there is to be one.
        """
        try:
            call = self._read((), batch)
            self._look()
            way = self._graphs.way(call)
            if way.labelled:
                self._graphs.check(way, call)
            if native is None:
                self._graphs.ready(way, self._variant(way.labelled, training=True), call.tensors)
            elif self._native is None:
                self._native = self._make_native(way, call, native)
            self._graphs.ready(way, self._variant(way.labelled, training=False))
        except Unsuited as reason:
            self._refusals.note(str(reason), training=True)
        except OverBudgetError:
            raise
        except Exception as error:
            self._refusals.block(error)

    def _variant(self, labelled: bool, training: bool) -> Variant:
        if not training:
            return "evaluate" if labelled else "predict"
        if not labelled:
            return "split"
        if self._loss_alone:
            return "loss"
        return "split-loss" if self._last is not None and self._last.was_split else "step"

    def _train(
        self,
        way: Way,
        runners: tuple[DirectRunner, ...],
        feeds: dict[str, Tensor],
        outputs: list[str],
        factor: float,
    ) -> dict[str, Tensor]:
        named = self._graphs.named()
        trained = trained_in(runners[-1], named)
        run = Run(
            runners,
            feeds,
            named,
            trained,
            outputs,
            seed=int(torch.randint(2**31 - 1, (1,))) if any(r.random for r in runners) else None,
            factor=factor,
            outer=self._last.outer if self._last is not None else 1.0,
            exact=self._graphs.compiler.settings.precision == "fp16",
            updates=runners[0].model.facts.training.updates,
            split=lambda: self._graphs.ready(way, "split-loss"),
            was_split=self._last is not None and self._last.was_split,
        )
        self._last = run
        function: Any = WholeStep if len(runners) == 1 else SplitStep
        values = function.apply(run, *(named[p.name] for p in trained))
        for name, value in run.updated.items():
            named[name].copy_(value)
        self._graphs.moved(run.updated.keys())
        return dict(zip(outputs, values, strict=True))

    def native_step(
        self,
        batch: Mapping[str, Any],
        *,
        variant: Variant,
        divisor: int,
        apply: bool,
        adopt: Callable[..., None],
    ) -> tuple[Tensor, Tensor] | None:
        """Loss and gradient norm of a step with the optimizer in the graph; None if that cannot be.

        `adopt` is called with the step when it is new, and before each run to set rates and clipping.
        """
        if self.blocked is not None or self.native_refused is not None:
            return None
        if vars(self.model).get("forward") is not self:
            self.drop_native("the model's forward was replaced by another one")
            return None
        try:
            call = self._read((), batch)
            self._look()
            if self.native_refused is not None:
                return None
            way = self._graphs.way(call)
            if self._native is None or self._native.form != way.form:
                before, self._native = self._native, self._make_native(way, call, variant)
                if before is not None:
                    self._native.go_on_from(before)
            interface = self._native.graph.facts.interface
            feeds = complete(call.tensors, interface.inputs)
            self._graphs.admit(way, variant, call, interface)
            factor = self._graphs.factor(way, call) / divisor
            adopt(self._native)
            try:
                self._native.share()
            except ModelError as error:
                raise Unsuited(error.message) from error
            seed = int(torch.randint(2**31 - 1, (1,))) if self._native.random else None
            loss, norm = self._native.run(feeds, scale=factor, seed=seed, apply=apply)
        except Unsuited as reason:
            self.drop_native(f"it cannot run this batch: {reason}")
            return None
        except Exception as error:
            self._refusals.block(error)
            return None
        self.counts["native"] += 1
        return scaled(loss, factor), norm

    def _make_native(self, way: Way, call: Call, variant: Variant) -> NativeStep:
        if not way.labelled:
            raise Unsuited("the model returns no loss for it")
        (graph,) = self._graphs.made(way, variant)
        # The values of such a buffer are part of what the model is, so that every step would be another's.
        moved = moving_buffers(self.model) & set(graph.facts.training.updates.values())
        if moved:
            raise Unsuited(f"a step moves its buffer {min(moved)!r}")
        self._graphs.check(way, call)
        key = self._graphs.key(way.form)
        return NativeStep(self.model, graph, form=way.form, key=key, threads=torch.get_num_threads())

    def _look(self) -> None:
        """The model may be another one by now."""
        if self._graphs.changed():
            self.refresh()

    # -- what it has to tell

    def inference(self) -> Model:
        """The inference graph with the weights as they are now."""
        return self._graphs.inference()

    def report(self) -> Report:
        """What was on ONNX Runtime, what in torch, and why."""
        compiler = self._graphs.compiler
        return Report(
            dict(self.counts),
            self._refusals.reasons,
            dict(compiler.counts),
            compiler.seconds,
            self._graphs.gradient_difference,
            memory=tuple(self._graphs.budget.plans.values()) if self._graphs.budget is not None else (),
        )

    def speed(self, batches: Sequence[Mapping[str, Any]]) -> float:
        """The seconds of forward and backward in torch by those on the graph; gradients stay as they are."""
        held = [(p, p.grad) for p in self.model.parameters()]
        counts, modes = self.counts.copy(), [(m, m.training) for m in self.model.modules()]

        def run(batch: Mapping[str, Any]) -> None:
            self.model(**batch).loss.backward()
            self.model.zero_grad()

        def run_in_torch(batch: Mapping[str, Any]) -> None:
            with self.detached():
                run(batch)

        self.model.train()
        try:
            return speed_against(run, run_in_torch, batches)
        finally:
            self.counts = counts
            for module, training in modes:
                module.training = training
            for parameter, gradient in held:
                parameter.grad = gradient
