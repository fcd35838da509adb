"""From a torch model to the sessions that train and evaluate it: export, pipeline, cache."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from fuseline import kernels
from fuseline.engine.manager import PassRecord
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline, Repeat, Stage
from fuseline.engine.properties import Property
from fuseline.engine.registry import registry
from fuseline.exporters import export, to_evaluation
from fuseline.tools.trainer.cache import CompileCache, code_version, digest
from fuseline.tools.trainer.cut import cut
from fuseline.tools.trainer.describe import (
    check_hooks,
    describe,
    task_of,
    without_checkpointing,
)
from fuseline.tools.trainer.runner import Runner, with_weights, without_weights
from fuseline.tools.trainer.sources import file_hash
from fuseline.tools.trainer.tensors import NamedTensors
from fuseline.tools.trainer.variants import only_loss, with_output_gradients, without_loss

__all__ = ["Compiler", "Precision", "Settings", "Variant"]

logger = logging.getLogger(__name__)
Precision = Literal["fp32", "bf16", "fp16"]

#: step: loss, outputs and gradients in one run; loss: the same without the outputs; split: forward, then
#: backward from gradients of the outputs, with or without the model's own loss; evaluate and predict: no
#: gradients, with and without the loss; native: the optimizer is in it, with or without accumulation.
Variant = Literal[
    "step", "loss", "split", "split-loss", "evaluate", "predict", "native", "native-accumulating"
]

#: Passes that compute the loss apart from the other outputs: where those are wanted too, that is work twice.
_FOR_LOSS_ALONE = ("select-labelled",)

_SESSIONS = 12


@dataclass(frozen=True)
class Settings:
    """What the user chose about compiling."""

    pipeline: str = "training"
    plugins: tuple[Path, ...] = ()
    dump_dir: Path | None = None
    precision: Precision = "fp32"
    cache: CompileCache = field(default_factory=lambda: CompileCache(None))


class Compiler:
    """Makes runners for models, each graph once: in memory by key, and across processes by the cache."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: exports, pipelines, cache hits: what this process had to do.
        self.counts: Counter[str] = Counter()
        #: What each pass did, by graph, where the graph was made here.
        self.records: dict[str, list[PassRecord]] = {}
        self._runners: OrderedDict[str, tuple[Runner, ...]] = OrderedDict()
        self._exported: tuple[str, Model] | None = None
        self._native: tuple[str, Model] | None = None
        for path in settings.plugins:
            registry.load_plugin(path)
        chosen = settings.pipeline
        if chosen == "training" and not kernels.available():
            logger.warning("the native operators are not built; training on ONNX Runtime's own")
            chosen = "training-stock"
        self._pipeline = _with_precision(Pipeline.resolve(chosen), settings.precision)

    def runners(self, model: nn.Module, variant: Variant, threads: int) -> tuple[Runner, ...]:
        """One runner, or two (forward, backward) for the split variants."""
        base = self.key(model)
        key = f"{digest({'model': base, 'variant': variant})}"
        known = self._runners.get(f"{key}/{threads}")
        if known is None:
            graphs = self._graphs(model, variant, base, key)
            known = tuple(Runner(graph, threads=threads) for graph in graphs)
            self._runners[f"{key}/{threads}"] = known
            while len(self._runners) > _SESSIONS:
                self._runners.popitem(last=False)
        self._runners.move_to_end(f"{key}/{threads}")
        return known

    def native(self, model: nn.Module, variant: Variant) -> Model:
        """The graph of a native step, without weights."""
        base = self.key(model)
        key = digest({"model": base, "variant": variant})
        if self._native is None or self._native[0] != key:
            self._native = (key, self._graphs(model, variant, base, key)[0])
        return self._native[1]

    def labels(self, model: nn.Module) -> list[str]:
        """The arguments that make the model compute its loss."""
        return [label.name for label in task_of(model).labels]

    def inference(self, model: nn.Module) -> Model:
        """The evaluation graph without a loss, the module's weights in it."""
        return without_loss(to_evaluation(self._export(model, self.key(model))))

    def _graphs(self, model: nn.Module, variant: Variant, base: str, key: str) -> list[Model]:
        check_hooks(model)
        parts = 2 if variant.startswith("split") else 1
        with self.settings.cache.locked(key):
            # Whoever asks for dumps wants to see the passes run.
            if self.settings.dump_dir is None:
                found = self.settings.cache.load(key, parts)
                if found is not None:
                    self.counts["cache hits"] += 1
                    return found
            made = self._build(self._export(model, base), variant)
            self.settings.cache.store(key, made)
        return made

    def _export(self, model: nn.Module, base: str) -> Model:
        if self._exported is None or self._exported[0] != base:
            self._exported = (base, self._load_or_export(model, digest({"model": base, "variant": "export"})))
        return self._exported[1]

    def _load_or_export(self, model: nn.Module, key: str) -> Model:
        cache = self.settings.cache
        with cache.locked(key):
            found = cache.load(key, 1)
            if found is not None:
                return with_weights(found[0], NamedTensors(model).current())
            with without_checkpointing(model):
                exported = export(model, task=task_of(model).name, train=True)
            self.counts["exports"] += 1
            cache.store(key, [without_weights(exported)])
        return exported

    def _build(self, exported: Model, variant: Variant) -> list[Model]:
        make = _BUILDERS[variant]
        return [without_weights(m) if i == 0 else m for i, m in enumerate(make(self, exported))]

    def transform(
        self, model: Model, label: str, *, gradients: bool, loss_alone: bool = False, then: str = ""
    ) -> Model:
        """The pipeline, whole or up to the gradient, and `then` more passes.

        `loss_alone`: of the graph's outputs only the loss will be asked for.
        """
        pipeline = self._pipeline if gradients else _before_gradient(self._pipeline)
        if then:
            pipeline = Pipeline((*pipeline.stages, *Pipeline.parse(then).stages))
        self.counts["pipelines"] += 1
        fed = model.clone()
        fed.facts.interface = replace(fed.facts.interface, fed=True)
        apart = [] if loss_alone else [p.name for p in pipeline.passes() if p.name in _FOR_LOSS_ALONE]
        result = pipeline.run(fed, self._observers(label), disable=apart)
        self.records[label] = result.records
        return result.model

    def _observers(self, label: str) -> list[Any]:
        if self.settings.dump_dir is None:
            return []
        from fuseline.engine.observers import DumpDiffs

        return [DumpDiffs(self.settings.dump_dir / label)]

    def key(self, model: nn.Module) -> str:
        return digest(
            {
                "code": code_version(),
                "kernels": _kernels_version(),
                "pipeline": str(self._pipeline),
                "plugins": [file_hash(p) for p in self.settings.plugins],
                "model": describe(model),
            }
        )


def _step(compiler: Compiler, exported: Model) -> Sequence[Model]:
    return [compiler.transform(exported, "step", gradients=True)]


def _loss(compiler: Compiler, exported: Model) -> Sequence[Model]:
    return [compiler.transform(only_loss(exported), "loss", gradients=True, loss_alone=True)]


def _evaluate(compiler: Compiler, exported: Model) -> Sequence[Model]:
    return [compiler.transform(to_evaluation(exported), "evaluate", gradients=False)]


def _predict(compiler: Compiler, exported: Model) -> Sequence[Model]:
    return [compiler.transform(without_loss(to_evaluation(exported)), "predict", gradients=False)]


def _split(compiler: Compiler, exported: Model) -> Sequence[Model]:
    graph = with_output_gradients(without_loss(exported))
    return cut(without_weights(compiler.transform(graph, "split", gradients=True)))


def _split_loss(compiler: Compiler, exported: Model) -> Sequence[Model]:
    graph = with_output_gradients(exported)
    return cut(without_weights(compiler.transform(graph, "split-loss", gradients=True)))


def _native(compiler: Compiler, exported: Model) -> Sequence[Model]:
    return [compiler.transform(exported, "native", gradients=True, loss_alone=True, then=_optimizer())]


def _native_accumulating(compiler: Compiler, exported: Model) -> Sequence[Model]:
    then = f"accumulate-gradients,{_optimizer()}"
    return [compiler.transform(exported, "native", gradients=True, loss_alone=True, then=then)]


_BUILDERS: dict[Variant, Callable[[Compiler, Model], Sequence[Model]]] = {
    "step": _step,
    "loss": _loss,
    "split": _split,
    "split-loss": _split_loss,
    "evaluate": _evaluate,
    "predict": _predict,
    "native": _native,
    "native-accumulating": _native_accumulating,
}


def _with_precision(pipeline: Pipeline, precision: Precision) -> Pipeline:
    """The pipeline with the mixed-precision pass right before the gradient, unless it has one already."""
    if precision == "fp32" or any(p.name == "mixed-precision" for p in pipeline.passes()):
        return pipeline
    from fuseline.passes.training.mixed_precision import MixedPrecision

    return Pipeline(_insert_before_gradient(pipeline.stages, MixedPrecision(to=precision)))


def _insert_before_gradient(stages: Sequence[Stage], added: Stage) -> tuple[Stage, ...]:
    index = next((i for i, s in enumerate(stages) if _differentiates(s)), len(stages))
    return (*stages[:index], added, *stages[index:])


def _before_gradient(pipeline: Pipeline) -> Pipeline:
    index = next((i for i, s in enumerate(pipeline.stages) if _differentiates(s)), len(pipeline.stages))
    # What only gradients need to know would only cost time.
    return Pipeline(tuple(s for s in pipeline.stages[:index] if str(s) != "check-trainable"))


def _differentiates(stage: Stage) -> bool:
    if isinstance(stage, Repeat):
        return any(_differentiates(s) for s in stage.stages)
    return Property.DIFFERENTIATED in stage.ensures


def _kernels_version() -> str:
    library = kernels.library_path()
    return file_hash(library) if library is not None else "absent"


def _optimizer() -> str:
    """The update as one native operator or, where the library was not built, of standard ones."""
    return "insert-optimizer" if kernels.available() else "insert-optimizer{kernels=false}"
