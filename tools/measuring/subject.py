"""What is measured: a model in training or inference, on one batch, with everything made for it in a folder.

The graphs and the batch are files, so that a process of its own can measure one contender's memory without
having exported or transformed anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import FuselineError
from fuseline.engine.inputs import generate, load_npz, save_npz
from fuseline.engine.memory.options import parse_sizes
from fuseline.engine.memory.sizes import symbols
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.registry import registry

if TYPE_CHECKING:
    from fuseline.exporters.plan import Plan

__all__ = ["PLAIN", "Subject", "inputs_for"]

PLAIN = "plain"
"""The graph as it was exported, or as it came."""
_SUBJECT, _BATCH = "subject.json", "batch.npz"
_USUAL = {"batch": 8, "sequence": 128}


def inputs_for(model: Model, sizes: Iterable[str], given: Path | None) -> dict[str, npt.NDArray[Any]]:
    """What a graph is run on: the arrays of a file, or made ones at these sizes."""
    if given is not None:
        return load_npz(given, model)
    usual = {name: size for name, size in _USUAL.items() if name in symbols(model)}
    return generate(_forward(model), sizes=usual | parse_sizes(sizes))


def _forward(model: Model) -> Model:
    """What a batch is made for: of a training step, the part up to the loss."""
    if not model.has(Property.DIFFERENTIATED):
        return model
    keep: Any = registry["keep-outputs"]
    kept = keep(names=(str(model.facts.training.loss),))
    return Pipeline.of(registry["evaluation-mode"](), kept).run(model).model


@dataclass(frozen=True)
class Subject:
    """A source (.onnx, or what `fuseline export` takes) and how it is run."""

    source: str
    folder: str
    train: bool = False
    task: str | None = None
    sizes: tuple[str, ...] = ()
    """Sizes of dimensions as `NAME=NUMBER`; a batch of 8 and 128 tokens where nothing is said."""
    threads: int = 2

    @property
    def is_graph(self) -> bool:
        return self.source.endswith(".onnx")

    # -- what is made once

    def prepare(self, inputs: Path | None = None) -> Model:
        """Export or load the plain graph, choose the batch, and put both into the folder."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        (Path(self.folder) / _SUBJECT).write_text(json.dumps(asdict(self)))
        plain = self._load(inputs) if self.is_graph else self._export()
        self.keep(PLAIN, plain)
        return plain

    def keep(self, name: str, model: Model) -> None:
        model.save(self._graph_file(name))

    def _load(self, inputs: Path | None) -> Model:
        model = Model.load(self.source)
        if self.train and model.facts.training.loss is None:
            raise FuselineError(
                f"{self.source} has no loss to train",
                hint="export it with `fuseline export SOURCE -o model.onnx --train`",
            )
        save_npz(Path(self.folder) / _BATCH, inputs_for(model, self.sizes, inputs))
        return model

    def _export(self) -> Model:
        """Dropout passes through, as in the torch that it is compared with: so losses can be compared."""
        from fuseline.exporters.context import Clock
        from fuseline.exporters.export import export_plan
        from fuseline.exporters.plan import Case
        from fuseline.exporters.sources import resolve

        source = resolve(self.source, task=self.task)
        plan = self._plan(source)
        sizes = _USUAL | parse_sizes(self.sizes)
        made = plan.make_batch(Case((sizes["batch"], sizes["sequence"]), "none"), 0)
        save_npz(Path(self.folder) / _BATCH, {name: value.numpy() for name, value in made.items()})
        with plan.as_torch_runs():
            return export_plan(plan, source, opset=18, check=False, clock=Clock(None))

    # -- what is used by each contender

    @classmethod
    def reopen(cls, folder: str) -> Subject:
        """The subject that was prepared in a folder."""
        data = json.loads((Path(folder) / _SUBJECT).read_text())
        return cls(**{**data, "sizes": tuple(data["sizes"])})

    def batch(self) -> dict[str, npt.NDArray[Any]]:
        with np.load(Path(self.folder) / _BATCH) as stored:
            return dict(stored)

    def graph(self, name: str) -> Model:
        return Model.load(self._graph_file(name))

    def torch_plan(self, attention: str | None) -> Plan:
        """The torch model of the source, and how it is called."""
        from fuseline.exporters.sources import resolve

        return self._plan(resolve(self.source, task=self.task, attention=attention))

    def pipeline(self, text: str | None) -> Pipeline:
        """What makes the graph that runs: a ready pipeline if none is named, and an optimizer in training."""
        chosen = Pipeline.resolve(text or ("training" if self.train else "inference"))
        if not self.train or any(p.name == "insert-optimizer" for p in chosen.passes()):
            return chosen
        return Pipeline.of(*chosen.stages, registry["insert-optimizer"]())

    def _plan(self, source: Any) -> Plan:
        from fuseline.exporters.planning import make_plan

        return make_plan(source, train=self.train)

    def _graph_file(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.onnx"
