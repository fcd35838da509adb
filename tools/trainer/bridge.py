"""The bridge: a torch model whose `forward` runs on ONNX Runtime, and which is otherwise untouched.

Only the attribute `forward` of the one instance is replaced, under the same signature. Parameters, hooks,
`save_pretrained`, DDP and DeepSpeed see the model that they always saw.
"""

from __future__ import annotations

import inspect
import logging
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.autograd import Run, SplitStep, WholeStep, scaled
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.gradients import gradient_name
from fuseline.exporters import ExportError
from fuseline.tools.trainer.call import Call, Random, Undecided, Unsuited, complete, read_call
from fuseline.tools.trainer.checking import check_against_torch, padded
from fuseline.tools.trainer.compiler import Compiler, Variant
from fuseline.tools.trainer.form import Form, few
from fuseline.tools.trainer.items import find_rule, scale
from fuseline.tools.trainer.low_precision import in_float32, low_precision, raised
from fuseline.tools.trainer.native import NativeStep
from fuseline.tools.trainer.report import Report, speed_against
from fuseline.tools.trainer.tensors import NamedTensors
from fuseline.tools.trainer.watch import Watch
from fuseline.tools.trainer.ways import Way, Ways

__all__ = ["Bridge", "Fallback", "attach"]

logger = logging.getLogger(__name__)
Fallback = Literal["torch", "error"]


def attach(model: nn.Module, compiler: Compiler, fallback: Fallback = "torch") -> Bridge:
    """Let the model run on ONNX Runtime from now on; a PEFT model through the model that it adapts."""
    target: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    known = vars(target).get("forward")
    if isinstance(known, Bridge):
        known.detach()
    return Bridge(target, compiler, fallback)


class Bridge:
    """Stands for the `forward` of one model; made by `attach`."""

    def __init__(self, model: nn.Module, compiler: Compiler, fallback: Fallback) -> None:
        self.model = model
        self._compiler = compiler
        self._fallback = fallback
        self._replaced = vars(model).get("forward")
        self._torch_forward = model.forward
        self.__signature__ = inspect.signature(model.forward)
        self._tensors = NamedTensors(model)
        self._watch = Watch(model)
        self._compiled_for: tuple[str, ...] = ()
        self._runners: dict[tuple[Form, Variant, int], tuple[DirectRunner, ...]] = {}
        self._ways = Ways(model, self._torch_forward, self._quietly)
        self._last: Run | None = None
        self._native: NativeStep | None = None
        self._loss_alone = False
        self._noted: dict[str, None] = {}
        self._checked: set[Form] = set()
        self._told_precision: str | None = None
        #: The worst difference of a gradient to torch's that the check found; None before it ran.
        self.gradient_difference: float | None = None
        #: How often each way was taken: step, loss, split, evaluate, predict, torch.
        self.counts: Counter[str] = Counter()
        #: Why the model runs in torch; None while it does not have to.
        self.blocked: str | None = None
        #: Why the optimizer is not in the graph, though it was to be.
        self.native_refused: str | None = None
        model.forward = self

    def detach(self) -> None:
        """Give the model its own `forward` back."""
        if self._replaced is None:
            del self.model.forward
        else:
            self.model.forward = self._replaced

    def refresh(self) -> None:
        """Look at the model anew: other settings, buffers or frozen weights are another graph."""
        self._runners.clear()
        self._checked.clear()
        self._ways.forget_results()
        self._tensors = NamedTensors(self.model)
        self._watch.remember()
        if self._native is not None and self._native.key != self._key(self._native.form):
            self.drop_native(f"{type(self.model).__name__} was changed after its whole step was made")

    def drop_native(self, reason: str) -> None:
        """From now on the optimizer is not in the graph; the native step is gone."""
        if self._fallback == "error":
            raise FuselineError(f"whole_step=True is not possible: {reason}", hint="leave it out")
        self._native = None
        self.native_refused = reason
        logger.warning("whole_step=True is not possible, so the optimizer runs in torch: %s", reason)

    @contextmanager
    def detached(self) -> Iterator[None]:
        self.detach()
        try:
            yield
        finally:
            self.model.forward = self

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
        # A copy of the model has weights of its own, and so is a plain torch model again.
        return _own_forward(memo[id(self.model)])

    def __reduce__(self) -> Any:
        return _own_forward, (self.model,)

    # -- the call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        training = self.model.training
        # Gradients in evaluation mode, or dropout without gradients: the graphs are made for neither.
        if self.blocked is None and training == torch.is_grad_enabled():
            try:
                return self._on_graph(read_call(self.__signature__, args, kwargs), training)
            except Undecided:
                pass
            except Unsuited as reason:
                self._note(str(reason), training or reason.aloud)
            except Exception as error:  # whatever exporting, compiling and running may raise
                self._block(error)
        self.counts["torch"] += 1
        return self._torch_forward(*args, **kwargs)

    def _on_graph(self, call: Call, training: bool) -> Any:
        self._look()
        way = self._ways.of(call)
        if way.draws and not training:
            raise Random("it draws random numbers in evaluation")
        variant = self._variant(way.labelled, training)
        runners = self._ready(way, variant)
        facts = runners[0].model.facts
        feeds = complete(call.tensors, facts.interface.inputs)
        factor = self._factor(way, call) if way.labelled else 1.0
        outputs = [o for o in facts.interface.outputs if o not in facts.training.updates]
        if training:
            if way.labelled:
                self._check(way, call)
            results = self._train(way, runners, feeds, outputs, factor)
        else:
            results = runners[0](feeds, self._tensors.current(), outputs)
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
            call = read_call(self.__signature__, (), batch)
            self._look()
            way = self._ways.of(call)
            if way.labelled:
                self._check(way, call)
            if native is None:
                self._ready(way, self._variant(way.labelled, training=True))
            elif self._native is None:
                self._native = self._make_native(way, call, native)
            self._ready(way, self._variant(way.labelled, training=False))
        except Unsuited as reason:
            self._note(str(reason), training=True)
        except Exception as error:
            self._block(error)

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
        named = self._tensors.current()
        trained = _trained(runners[-1], named)
        run = Run(
            runners,
            feeds,
            named,
            trained,
            outputs,
            seed=int(torch.randint(2**31 - 1, (1,))) if any(r.random for r in runners) else None,
            factor=factor,
            outer=self._last.outer if self._last is not None else 1.0,
            exact=self._compiler.settings.precision == "fp16",
            updates=runners[0].model.facts.training.updates,
            split=lambda: self._ready(way, "split-loss"),
            was_split=self._last is not None and self._last.was_split,
        )
        self._last = run
        function: Any = WholeStep if len(runners) == 1 else SplitStep
        values = function.apply(run, *(named[p.name] for p in trained))
        for name, value in run.updated.items():
            named[name].copy_(value)
        if run.updated.keys() - self._watch.moving:
            self._watch.moving |= run.updated.keys()
            self._watch.remember()
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
        try:
            call = read_call(self.__signature__, (), batch)
            self._look()
            if self.native_refused is not None:
                return None
            way = self._ways.of(call)
            if self._native is None or self._native.form != way.form:
                self._native = self._make_native(way, call, variant)
            feeds = complete(call.tensors, self._native.graph.facts.interface.inputs)
            factor = self._factor(way, call) / divisor
            adopt(self._native)
        except Unsuited as reason:
            self.drop_native(f"it cannot run this batch: {reason}")
            return None
        except Exception as error:
            self._block(error)
            return None
        seed = int(torch.randint(2**31 - 1, (1,))) if self._native.random else None
        loss, norm = self._native.run(feeds, scale=factor, seed=seed, apply=apply)
        self.counts["native"] += 1
        return scaled(loss, factor), norm

    def _make_native(self, way: Way, call: Call, variant: Variant) -> NativeStep:
        if not way.labelled:
            raise Unsuited("the model returns no loss for it")
        (graph,) = self._graphs(way, variant)
        self._check(way, call)
        key = self._key(way.form)
        return NativeStep(self.model, graph, form=way.form, key=key, threads=torch.get_num_threads())

    def _key(self, form: Form) -> str:
        with self.detached():
            return self._compiler.key(self.model, form)

    # -- what has to be known before the first run

    def _check(self, way: Way, call: Call) -> None:
        """Loss and gradients against torch's on this batch, once for each graph; a mismatch is an error."""
        settings = self._compiler.settings
        if way.form in self._checked or not settings.check or settings.precision != "fp32":
            return
        (runner,) = self._ready(way, "check")
        rows: Sequence[Mapping[str, Any]] = runner.model.facts.origin.gradient_check
        if not rows:
            inputs = runner.model.facts.interface.inputs
            batches = {
                how: (call.all_arguments(batch), complete(batch, inputs))
                for how, batch in padded(raised(few(call.tensors))).items()
            }
            with self.detached(), in_float32(self.model):
                named = self._tensors.current()
                rows = check_against_torch(
                    self.model, self._torch_forward, runner, _trained(runner, named), named, batches
                )
            with self.detached():
                self._compiler.record_check(self.model, way.form, rows)
        self._checked.add(way.form)
        self.gradient_difference = max((row["difference"] for row in rows), default=None)

    def inference(self) -> Model:
        """The inference graph with the weights as they are now."""
        with self.detached():
            return self._compiler.inference(self.model, self._ways.for_inference())

    def report(self) -> Report:
        """What was on ONNX Runtime, what in torch, and why."""
        reasons = [*self._noted, *(r for r in (self.blocked, self.native_refused) if r is not None)]
        return Report(
            dict(self.counts),
            tuple(reason.splitlines()[0] for reason in reasons),
            dict(self._compiler.counts),
            self._compiler.seconds,
            self.gradient_difference,
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

    def _factor(self, way: Way, call: Call) -> float:
        if call.items is None:
            return 1.0
        if way.item_rule is None:
            with self._quietly():
                way.item_rule = find_rule(self._torch_forward, call.all_arguments(few(call.tensors)))
        if way.item_rule is None:
            raise Undecided("this batch does not tell what the loss does with num_items_in_batch")
        if way.item_rule == "unknown":
            raise Unsuited("its loss uses num_items_in_batch in a way that the graph does not")
        return scale(way.item_rule, call.tensors.get("labels"), call.items)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """The model in evaluation mode, without gradients, under its own forward; then as it was."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=()), self.detached():
                yield
        finally:
            for module, training in modes:
                module.training = training

    def _look(self) -> None:
        """The model as it is now: another structure, setting or set of trainable weights is another graph."""
        if self._watch.changed():
            self.refresh()
        odd = self._watch.odd_mode()
        if odd is not None:
            raise Unsuited(odd)
        trainable = self._tensors.trainable()
        if trainable != self._compiled_for:
            self._compiled_for = trainable
            self.refresh()

    def _ready(self, way: Way, variant: Variant) -> tuple[DirectRunner, ...]:
        threads = torch.get_num_threads()
        if (way.form, variant, threads) not in self._runners:
            graphs = self._graphs(way, variant)
            self._runners[way.form, variant, threads] = self._compiler.runners(graphs, threads)
        return self._runners[way.form, variant, threads]

    def _graphs(self, way: Way, variant: Variant) -> list[Model]:
        """The graphs of a variant, by the first form that the model can be exported by."""
        self._tell_precision()
        with self.detached():
            while True:
                try:
                    return self._compiler.graphs(self.model, variant, way.form)
                except ExportError as error:
                    way.next_form(error)

    def _tell_precision(self) -> None:
        low = low_precision(self.model)
        if low and self._told_precision != low:
            self._told_precision = low
            message = (
                "the weights of %s are %s: the graph computes in float32, and rounds what it gives to torch"
            )
            logger.warning(message, type(self.model).__name__, low)

    # -- when the graph is not the way

    def _note(self, reason: str, training: bool) -> None:
        """Generation and the like may run in torch without a word; training may not."""
        if not training:
            return
        if self._fallback == "error":
            raise FuselineError(f"{type(self.model).__name__} cannot train on the graph: {reason}")
        if reason not in self._noted:
            self._noted[reason] = None
            logger.warning("%s runs in torch: %s", type(self.model).__name__, reason)

    def _block(self, error: Exception) -> None:
        known = isinstance(error, FuselineError)
        reason = str(error) if known else f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        if self._fallback == "error":
            if known:
                raise error
            raise FuselineError(
                f"{type(self.model).__name__} cannot run on ONNX Runtime: {reason}",
                hint="fallback='torch' trains it in torch",
            ) from error
        self.blocked = reason
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        logger.warning(
            "%s trains in torch, since it cannot run on ONNX Runtime: %s%s",
            type(self.model).__name__,
            self.blocked,
            notes,
        )


def _own_forward(model: nn.Module) -> Any:
    return types.MethodType(type(model).forward, model)


def _trained(runner: DirectRunner, named: Mapping[str, Tensor]) -> list[Parameter]:
    """The parameters with a gradient in the graph, each tensor once however many names it has."""
    found: dict[int, Parameter] = {}
    for parameter in runner.model.parameters:
        if parameter.value is not None and gradient_name(parameter.value) in runner.produced:
            tensor = named[parameter.name]
            if tensor.requires_grad:
                found.setdefault(id(tensor), parameter)
    return list(found.values())
