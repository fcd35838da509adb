"""The graphs of a live model: made when a call needs them, checked against torch, dropped when it changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.facts import Interface
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.training.gradients import gradient_name
from fuseline.exporters import ExportError
from fuseline.exporters.conditions import holds
from fuseline.tools.trainer.budget import Budget, Sizes
from fuseline.tools.trainer.cache import digest
from fuseline.tools.trainer.call import Call, Different, Undecided, Unsuited, complete, named_sizes
from fuseline.tools.trainer.checking import check_against_torch, evaluation_differs, padded
from fuseline.tools.trainer.compiler import Compiler, Variant
from fuseline.tools.trainer.describe import describe
from fuseline.tools.trainer.form import Form, few
from fuseline.tools.trainer.items import find_rule, scale
from fuseline.tools.trainer.low_precision import in_float32, low_precision, raised
from fuseline.tools.trainer.own_forward import OwnForward
from fuseline.tools.trainer.tensors import NamedTensors
from fuseline.tools.trainer.watch import Watch, around
from fuseline.tools.trainer.ways import Way, Ways

__all__ = ["LiveGraphs", "trained_in"]

logger = logging.getLogger(__name__)
_LOSS_ALONE: tuple[Variant, ...] = ("loss", "native", "native-accumulating")
#: Variants that hold what the forward half leaves for the backward half in one graph.
_PLANNED: tuple[Variant, ...] = ("step", "loss")


class LiveGraphs:
    """Knows the model as it was when its graphs were made, and notices when it is another one."""

    def __init__(self, model: nn.Module, compiler: Compiler, own: OwnForward) -> None:
        self._model = model
        amount = compiler.settings.memory_budget
        #: The plans that keep training steps within their memory, if there is a limit.
        self.budget = Budget(amount) if amount is not None else None
        self._own = own
        self.compiler = compiler
        self._watch = Watch(model)
        #: What the model was when it was looked at closely; None: never yet.
        self._identity: str | None = None
        self._tensors = NamedTensors(model)
        self._compiled_for = self._tensors.trainable()
        self._ways = Ways(model, own)
        self._runners: dict[tuple[Form, Variant, int, Sizes], tuple[DirectRunner, ...]] = {}
        self._unplanned: dict[tuple[Form, Variant], Model] = {}
        self._checked: set[Form] = set()
        #: How each graph of evaluation differs from torch; None: it does not.
        self._evaluated: dict[tuple[Form, Variant], str | None] = {}
        #: Whether the graph is right for a batch for which its code took another branch than was traced.
        self._tried: dict[tuple[Any, ...], bool] = {}
        self._told_precision: str | None = None
        #: The worst difference of a gradient to torch's that the check found; None before it ran.
        self.gradient_difference: float | None = None

    def changed(self) -> bool:
        """Whether the model is another one: its structure, a setting, or what of it is trained."""
        return self._watch.changed() or self._tensors.trainable() != self._compiled_for

    def refresh(self) -> None:
        """Look at the model anew: other settings, buffers or frozen weights are another graph."""
        with self._own.restored():
            identity = digest(describe(self._model))
        if identity != self._identity:
            self._runners.clear()
            self._unplanned.clear()
            self._checked.clear()
            self._evaluated.clear()
            self._tried.clear()
            self._ways.forget_results()
        self._identity = identity
        self._tensors = NamedTensors(self._model)
        self._compiled_for = self._tensors.trainable()
        self._watch.remember()

    def way(self, call: Call) -> Way:
        """How calls like this one run."""
        odd = around() or self._watch.odd_mode()
        if odd is not None:
            raise Unsuited(odd)
        return self._ways.of(call)

    def named(self) -> dict[str, Tensor]:
        """The model's tensors by name, as they are now."""
        return self._tensors.current()

    def moved(self, buffers: Set[str]) -> None:
        """A step has written these buffers, which is no change of the model."""
        if buffers - self._watch.moving:
            self._watch.moving |= buffers
            self._watch.remember()

    def key(self, form: Form) -> str:
        """The same for models that the same graph serves."""
        with self._own.restored():
            return self.compiler.key(self._model, form)

    def ready(
        self, way: Way, variant: Variant, batch: Mapping[str, Tensor] | None = None
    ) -> tuple[DirectRunner, ...]:
        """What runs a variant, for as many threads as torch takes now.

        With a budget, a step is planned for the sizes of the batch that it is to run.
        """
        threads = torch.get_num_threads()
        budget = self.budget if variant in _PLANNED and batch is not None else None
        sizes: Sizes = ()
        if budget is not None and batch is not None:
            if (way.form, variant) not in self._unplanned:
                (self._unplanned[way.form, variant],) = self.made(way, variant)
            sizes = budget.sizes(self._unplanned[way.form, variant], batch)
        key = (way.form, variant, threads, sizes)
        if key not in self._runners:
            if budget is not None:
                graphs = [budget.within(self._unplanned[way.form, variant], sizes)]
            else:
                graphs = self.made(way, variant)
            self._runners[key] = self.compiler.runners(graphs, threads)
        return self._runners[key]

    def made(self, way: Way, variant: Variant) -> list[Model]:
        """The graphs of a variant, by the first form that the model can be exported by."""
        self._tell_precision()
        with self._own.restored():
            while True:
                try:
                    return self.compiler.graphs(self._model, variant, way.form)
                except ExportError as error:
                    way.next_form(error)

    def inference(self) -> Model:
        """The inference graph with the weights as they are now."""
        with self._own.restored():
            return self.compiler.inference(self._model, self._ways.for_inference())

    def check(self, way: Way, call: Call) -> None:
        """Loss and gradients against torch's on this batch, once for each graph; a mismatch is an error."""
        settings = self.compiler.settings
        if way.form in self._checked or not settings.check or settings.precision != "fp32":
            return
        (runner,) = self.ready(way, "check")
        rows: Sequence[Mapping[str, Any]] = runner.model.facts.origin.gradient_check
        if not rows:
            rows = self._hold_to_torch(way, padded(raised(few(call.tensors))), call)
            if not rows:
                return  # torch has no loss for these rows; the next batch may tell
            with self._own.restored():
                self.compiler.record_check(self._model, way.form, rows)
        self._checked.add(way.form)
        self.gradient_difference = max((row["difference"] for row in rows), default=None)

    def _hold_to_torch(
        self, way: Way, batches: Mapping[str, Mapping[str, Tensor]], call: Call
    ) -> list[dict[str, Any]]:
        """Loss and gradients against torch's, of these batches of tensors; a mismatch is an error."""
        (runner,) = self.ready(way, "check")
        inputs = runner.model.facts.interface.inputs
        fed = {how: (call.all_arguments(batch), complete(batch, inputs)) for how, batch in batches.items()}
        with self._own.restored(), in_float32(self._model):
            named = self.named()
            trained = trained_in(runner, named)
            return check_against_torch(self._model, self._own, runner, trained, named, fed)

    def check_evaluation(self, way: Way, variant: Variant, call: Call) -> None:
        """The results of an evaluation against torch's on rows of this batch, once for each graph.

        The graph was traced in training, and what a forward does otherwise in evaluation is not in it.
        """
        settings, key = self.compiler.settings, (way.form, variant)
        if not settings.check or settings.precision != "fp32":
            return
        if key not in self._evaluated:
            self._evaluated[key] = self._evaluation_differs(way, variant, call, raised(few(call.tensors)))
        if (reason := self._evaluated[key]) is not None:
            raise Different(reason)

    def _evaluation_differs(
        self, way: Way, variant: Variant, call: Call, batch: Mapping[str, Tensor]
    ) -> str | None:
        (runner,) = self.ready(way, variant)
        outputs = list(runner.model.facts.interface.outputs)
        feeds = complete(batch, runner.model.facts.interface.inputs)
        with self._own.quietly(), in_float32(self._model):
            expected = self._own(**call.all_arguments(batch))
            found = runner(feeds, self.named(), outputs)
        return evaluation_differs(expected, found, batch.get("attention_mask"))

    def admit(self, way: Way, variant: Variant, call: Call, interface: Interface) -> None:
        """Refuse a batch for which the graph is not the model; what only sizes leave in doubt is tried."""
        if variant not in _LOSS_ALONE:
            if interface.numbers:
                raise Unsuited(f"it returns {interface.numbers[0]!r}, a number that depends on the batch")
            if way.template is not None and way.template.lacks is not None:
                raise Unsuited(f"it returns an object of the type {way.template.lacks}")
        sizes = named_sizes(call.tensors, interface.inputs)
        broken = [condition for condition in interface.conditions if not holds(condition, sizes)]
        if not broken:
            return
        trains = variant not in ("evaluate", "predict")
        key = (way.form, trains or variant, *sizes.items())
        if key not in self._tried:
            self._tried[key] = self._is_right(way, variant, call, trains)
        if not self._tried[key]:
            raise Unsuited(f"its code decides by sizes, and the graph is made for {broken[0]}")

    def _is_right(self, way: Way, variant: Variant, call: Call, trains: bool) -> bool:
        """Whether the graph gives torch's results for this very batch."""
        settings = self.compiler.settings
        if not settings.check or settings.precision != "fp32" or (trains and not way.labelled):
            return False
        try:
            if trains:
                self._hold_to_torch(way, {"as it is": raised(call.tensors)}, call)
                return True
            return self._evaluation_differs(way, variant, call, raised(call.tensors)) is None
        except Exception:  # torch may refuse such a batch, and will say so itself
            return False

    def factor(self, way: Way, call: Call) -> float:
        """What the graph's loss is multiplied by where the caller counts the items of the whole batch."""
        if call.items is None:
            return 1.0
        if not call.items:
            raise Unsuited("num_items_in_batch is 0, by which torch divides")
        if way.item_rule is None:
            with self._own.quietly():
                way.item_rule = find_rule(self._own, call.all_arguments(few(call.tensors)))
        if way.item_rule is None:
            raise Undecided("this batch does not tell what the loss does with num_items_in_batch")
        if way.item_rule == "unknown":
            raise Unsuited("its loss uses num_items_in_batch in a way that the graph does not")
        return scale(way.item_rule, call.tensors.get("labels"), call.items)

    def _tell_precision(self) -> None:
        low = low_precision(self._model)
        if low and self._told_precision != low:
            self._told_precision = low
            message = (
                "the weights of %s are %s: the graph computes in float32, and rounds what it gives to torch"
            )
            logger.warning(message, type(self._model).__name__, low)


def trained_in(runner: DirectRunner, named: Mapping[str, Tensor]) -> list[Parameter]:
    """The parameters with a gradient in the graph, each tensor once however many names it has."""
    found: dict[int, Parameter] = {}
    for parameter in runner.model.parameters:
        if parameter.value is not None and gradient_name(parameter.value) in runner.produced:
            tensor = named[parameter.name]
            if tensor.requires_grad:
                found.setdefault(id(tensor), parameter)
    return list(found.values())
