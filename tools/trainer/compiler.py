"""From a torch model to the sessions that train and evaluate it: export, pipeline, cache."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from fuseline import kernels
from fuseline.engine.execution.direct import DirectRunner
from fuseline.engine.execution.plan import Plan
from fuseline.engine.execution.weights import weights_as_initializers
from fuseline.engine.manager import PassRecord
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline, Stage
from fuseline.engine.registry import registry
from fuseline.exporters import export
from fuseline.exporters.mode import without_dropout
from fuseline.passes.interface.keep_outputs import KeepOutputs
from fuseline.tools.trainer.cache import CompileCache, code_version, digest
from fuseline.tools.trainer.describe import (
    check_hooks,
    describe,
    without_checkpointing,
)
from fuseline.tools.trainer.effects import Effects
from fuseline.tools.trainer.form import Form
from fuseline.tools.trainer.identity import file_hash
from fuseline.tools.trainer.low_precision import in_float32, low_precision
from fuseline.tools.trainer.precision import Precision, before_gradient, in_precision
from fuseline.tools.trainer.tensors import NamedTensors

__all__ = ["Compiler", "Settings", "Variant"]

logger = logging.getLogger(__name__)

#: step: loss, outputs and gradients in one run; loss: the same without the outputs; split: forward, then
#: backward from gradients of the outputs, with or without the model's own loss; evaluate and predict: no
#: gradients, with and without the loss; native: the optimizer is in it, with or without accumulation; check:
#: the loss and gradients with dropout passing through, to be compared with torch's.
Variant = Literal[
    "step",
    "loss",
    "split",
    "split-loss",
    "evaluate",
    "predict",
    "native",
    "native-accumulating",
    "check",
]

#: Passes that compute the loss apart from the other outputs: where those are wanted too, that is work twice.
_FOR_LOSS_ALONE = ("select-labelled", "eliminate-padding")

_GRAPHS = 12


@dataclass(frozen=True)
class Settings:
    """What the user chose about compiling."""

    pipeline: str = "training"
    plugins: tuple[Path, ...] = ()
    dump_dir: Path | None = None
    precision: Precision = "fp32"
    #: Compare loss and gradients with torch's before a graph trains.
    check: bool = True
    #: Layers round to grids, and the rounding has to get its gradient.
    aware: bool = False
    #: What a step may take while it runs, "2GB" or a fraction of what it takes without a plan.
    memory_budget: str | float | None = None
    cache: CompileCache = field(default_factory=lambda: CompileCache(None))


class Compiler:
    """Makes runners for models, each graph once: in memory by key, and across processes by the cache."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: exports, pipelines, cache hits: what this process had to do.
        self.counts: Counter[str] = Counter()
        #: How long that took in all.
        self.seconds = 0.0
        #: What each pass did, by graph, where the graph was made here.
        self.records: dict[str, list[PassRecord]] = {}
        self._made: OrderedDict[str, list[Model]] = OrderedDict()
        self._exported: tuple[str, Model] | None = None
        self._told: set[str] = set()
        for path in settings.plugins:
            registry.load_plugin(path)
        chosen = settings.pipeline
        if chosen == "training" and not kernels.available():
            logger.warning("the native operators are not built; training on ONNX Runtime's own")
            chosen = "training-stock"
        self._pipeline = in_precision(Pipeline.resolve(chosen), settings.precision)
        if settings.aware:
            self._pipeline = Pipeline((*_passes(_AWARE), *self._pipeline.stages))

    def runners(self, graphs: Sequence[Model], threads: int) -> tuple[DirectRunner, ...]:
        """One runner, or two (forward, backward) for the split variants."""
        # An arena would hold more than was planned.
        arena = self.settings.memory_budget is None
        return tuple(
            DirectRunner(Plan.of_step(graph, threads=threads, arena=arena, block=True)) for graph in graphs
        )

    def graphs(self, model: nn.Module, variant: Variant, form: Form) -> list[Model]:
        """The graphs of a variant, their weights as inputs: from memory, from the cache, or made now."""
        begin = time.perf_counter()
        try:
            return self._graphs(model, variant, form)
        finally:
            self.seconds += time.perf_counter() - begin

    def _graphs(self, model: nn.Module, variant: Variant, form: Form) -> list[Model]:
        base = self.key(model, form)
        key = digest({"model": base, "variant": variant})
        if key not in self._made:
            self._made[key] = self._load_or_build(model, variant, form, base, key)
            while len(self._made) > _GRAPHS:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        for note in self._made[key][0].facts.origin.notes:
            if note not in self._told:
                self._told.add(note)
                logger.warning("%s: %s", type(model).__name__, note)
        return self._made[key]

    def record_check(self, model: nn.Module, form: Form, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note with the graph of the check that it was passed, here and for later processes."""
        (graph,) = self.graphs(model, "check", form)
        graph.facts.origin = replace(graph.facts.origin, gradient_check=tuple(rows))
        self.settings.cache.store(digest({"model": self.key(model, form), "variant": "check"}), [graph])

    def inference(self, model: nn.Module, form: Form) -> Model:
        """The evaluation graph without a loss, the module's weights in it.

        A decoder that reads the labels in training gets `decoder_input_ids` of its own, so that it generates.
        """
        encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if encodes and form.task is not None and not self.settings.aware:
            with without_checkpointing(model), in_float32(model):
                return export(model, task=form.task)
        exported = self._export(model, form, self.key(model, form))
        if low_precision(model):  # of when it was exported; otherwise the module's memory is the graph's
            fed = Pipeline.parse("feed-parameters").run(exported).model
            with in_float32(model):
                exported = weights_as_initializers(fed, NamedTensors(model).current())
        return Pipeline.parse("evaluation-mode,drop-loss").run(exported).model

    def _load_or_build(
        self, model: nn.Module, variant: Variant, form: Form, base: str, key: str
    ) -> list[Model]:
        check_hooks(model)
        parts = 2 if variant.startswith("split") else 1
        with self.settings.cache.locked(key):
            # Whoever asks for dumps wants to see the passes run.
            if self.settings.dump_dir is None:
                found = self.settings.cache.load(key, parts)
                if found is not None:
                    self.counts["cache hits"] += 1
                    return found
            made = self._build(self._export(model, form, base), variant)
            self.settings.cache.store(key, made)
        return made

    def _export(self, model: nn.Module, form: Form, base: str) -> Model:
        if self._exported is None or self._exported[0] != base:
            key = digest({"model": base, "variant": "export"})
            self._exported = (base, self._load_or_export(model, form, key))
        return self._exported[1]

    def _load_or_export(self, model: nn.Module, form: Form, key: str) -> Model:
        cache = self.settings.cache
        with cache.locked(key):
            found = cache.load(key, 1)
            with without_checkpointing(model), in_float32(model):
                if found is not None:
                    return weights_as_initializers(found[0], NamedTensors(model).current())
                exported = _without_effects(model, form)
                fed = Pipeline.parse("feed-parameters").run(exported).model
                if low_precision(model):
                    # The module's memory is the graph's, and will be of the low type again.
                    exported = weights_as_initializers(fed, NamedTensors(model).current())
            self.counts["exports"] += 1
            cache.store(key, [fed])
        return exported

    def _build(self, exported: Model, variant: Variant) -> list[Model]:
        """The passes of the variant around the user's pipeline, each part of it with its own end."""
        recipe = _RECIPES[variant]
        before = _passes(recipe.before)
        if recipe.loss_alone:
            before = (KeepOutputs(names=(str(exported.facts.training.loss),)), *before)
        pipeline = self._pipeline if recipe.gradients else before_gradient(self._pipeline)
        middle = Pipeline((*before, *pipeline.stages, *_passes(recipe.after())))
        # Where other outputs are wanted too, computing the loss apart from them is work twice.
        apart = [] if recipe.loss_alone else [p.name for p in middle.passes() if p.name in _FOR_LOSS_ALONE]
        fed = exported.clone() if recipe.dropout else without_dropout(exported)
        fed.facts.interface = replace(fed.facts.interface, fed=True)
        self.counts["pipelines"] += 1
        result = middle.run(fed, self._observers(variant, fed.facts.origin.architecture), disable=apart)
        self.records[variant] = result.records
        return [Pipeline.parse(end).run(result.model).model for end in recipe.ends]

    def _observers(self, variant: Variant, architecture: str | None) -> list[Any]:
        if self.settings.dump_dir is None:
            return []
        from fuseline.engine.observers import DumpDiffs

        title = f"{architecture} · {variant}" if architecture else variant
        return [DumpDiffs(self.settings.dump_dir / variant, title=title)]

    def key(self, model: nn.Module, form: Form) -> str:
        return digest(
            {
                "code": code_version(),
                "kernels": _kernels_version(),
                "pipeline": str(self._pipeline),
                "plugins": [file_hash(p) for p in self.settings.plugins],
                "model": describe(model),
                "form": repr(form),
            }
        )


def _without_effects(model: nn.Module, form: Form) -> Model:
    """The export; a forward that does more than compute in training is an error."""
    before = Effects(model)
    try:
        exported = export(model, **form.export_arguments())
    except Exception as error:
        before.refuse(error)
        raise
    before.refuse()
    return exported


_AWARE = "lift-constants,resolve-cast-like,infer-shapes,eliminate-noop-cast,eliminate-identity,fake-quantize"


@dataclass(frozen=True)
class _Recipe:
    """What stands in front of the user's pipeline and behind it; one graph for each of `ends`."""

    before: str = ""
    gradients: bool = True
    #: Of the graph's outputs only the loss will be asked for.
    loss_alone: bool = False
    dropout: bool = True
    after: Callable[[], str] = lambda: ""
    ends: tuple[str, ...] = ("feed-parameters",)


_HALVES = ("feed-parameters,keep-forward", "feed-parameters,keep-backward")


def _optimizer() -> str:
    """The update as one native operator or, where the library was not built, of standard ones."""
    return "insert-optimizer" if kernels.available() else "insert-optimizer{kernels=false}"


_RECIPES: dict[Variant, _Recipe] = {
    "step": _Recipe(),
    "loss": _Recipe(loss_alone=True),
    "split": _Recipe("drop-loss,take-output-gradients", ends=_HALVES),
    "split-loss": _Recipe("take-output-gradients", ends=_HALVES),
    "evaluate": _Recipe("evaluation-mode", gradients=False),
    "predict": _Recipe("evaluation-mode,drop-loss", gradients=False),
    "check": _Recipe(loss_alone=True, dropout=False),
    "native": _Recipe(loss_alone=True, after=_optimizer),
    "native-accumulating": _Recipe(loss_alone=True, after=lambda: f"accumulate-gradients,{_optimizer()}"),
}


def _passes(text: str) -> tuple[Stage, ...]:
    return Pipeline.parse(text).stages if text else ()


def _kernels_version() -> str:
    library = kernels.library_path()
    return file_hash(library) if library is not None else "absent"
