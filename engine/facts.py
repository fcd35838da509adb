"""What is known about a model besides its graph, as typed records that travel in the file's metadata.

Records are frozen, so that copies of a model share them; who learns something new puts a changed record in
place: `model.facts.training = replace(model.facts.training, loss="loss")`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from fuseline.engine.errors import ModelError
from fuseline.engine.properties import Property

__all__ = ["DeclaredInput", "Dropout", "Facts", "GraphOptimizer", "Interface", "Origin", "Training"]

_VERSION = 2


@dataclass(frozen=True)
class Origin:
    """Where the model came from, and how its export went."""

    task: str | None = None
    family: str | None = None
    architecture: str | None = None
    attention: str | None = None
    notes: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    #: Rows of `CheckReport`: outputs and gradients against torch.
    check: tuple[Mapping[str, Any], ...] = ()
    gradient_check: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class DeclaredInput:
    """The axes of an input by name or size, and what stands for it when a caller leaves it out."""

    axes: tuple[str | int, ...] = ()
    default: float | int | None = None


@dataclass(frozen=True)
class Interface:
    """What the model was declared to take and to give."""

    inputs: Mapping[str, DeclaredInput] = field(default_factory=dict)
    dynamic_axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    #: What the sizes of a batch have to be for the graph to be the model, such as "batch <= 8".
    conditions: tuple[str, ...] = ()
    #: Numbers among the results that depend on the batch: Python's own, so that no graph gives them.
    numbers: tuple[str, ...] = ()
    #: Parameters are fed at every run, so that not even a frozen one may be baked in.
    fed: bool = False


@dataclass(frozen=True)
class GraphOptimizer:
    """Which optimizer is in the graph, over which values, with which moments (inputs, one per value)."""

    kind: str
    values: tuple[str, ...]
    moments: tuple[tuple[str, ...], ...] = ()
    accumulate: bool = False


@dataclass(frozen=True)
class Training:
    """What training needs to know."""

    mode: str | None = None
    loss: str | None = None
    #: Output → the input or initializer whose memory it overwrites, once everything else has read it.
    updates: Mapping[str, str] = field(default_factory=dict)
    #: Trainable values that the loss does not depend on.
    untrained: tuple[str, ...] = ()
    #: Embedding table → the row that look-ups do not train.
    padding_rows: Mapping[str, int] = field(default_factory=dict)
    #: The boolean initializer that every Dropout reads.
    switch: str | None = None
    optimizer: GraphOptimizer | None = None


@dataclass(frozen=True)
class Dropout:
    """How many streams of random numbers were handed out; None: unknown, look at the graph."""

    streams: int | None = None


@dataclass
class Facts:
    """All records of one model. `extra` is for plugins: JSON values under keys of their own."""

    origin: Origin = field(default_factory=Origin)
    interface: Interface = field(default_factory=Interface)
    training: Training = field(default_factory=Training)
    dropout: Dropout = field(default_factory=Dropout)
    established: frozenset[Property] = frozenset()
    extra: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Facts:
        return replace(self, extra=json.loads(json.dumps(self.extra)))

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON values by record."""
        rows: dict[str, Any] = {}
        for part in ("origin", "interface", "training", "dropout"):
            record = getattr(self, part)
            changed = {
                f.name: _plain(getattr(record, f.name))
                for f in fields(record)
                if getattr(record, f.name) != getattr(type(record)(), f.name)
            }
            if changed:
                rows[part] = changed
        if self.established:
            rows["established"] = sorted(self.established)
        if self.extra:
            rows["extra"] = self.extra
        return {"version": _VERSION, **rows} if rows else {}

    @classmethod
    def from_json(cls, data: Any) -> Facts:
        """Read what `to_json` wrote, now or in earlier versions; anything else is refused."""
        if not isinstance(data, dict):
            raise ModelError(f"the model's facts are a mapping, not {type(data).__name__}")
        try:
            return _read(data if "version" in data else _from_flat(data))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise ModelError(f"the facts in the model's metadata cannot be read: {error}") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value


def _read(data: dict[str, Any]) -> Facts:
    if data["version"] != _VERSION:
        raise ModelError(
            f"the model's facts are of version {data['version']}, and this fuseline reads {_VERSION}",
            hint="use the version of fuseline that wrote the model",
        )
    interface, training = dict(data.get("interface", {})), dict(data.get("training", {}))
    inputs = {name: DeclaredInput(**_tuples(row)) for name, row in interface.pop("inputs", {}).items()}
    optimizer = training.pop("optimizer", None)
    return Facts(
        Origin(**_tuples(data.get("origin", {}))),
        Interface(**_tuples(interface), inputs=inputs),
        Training(**_tuples(training), optimizer=GraphOptimizer(**_tuples(optimizer)) if optimizer else None),
        Dropout(**data.get("dropout", {})),
        frozenset(Property(word) for word in data.get("established", ())),
        dict(data.get("extra", {})),
    )


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only."""
    return {key: _tuple(value) for key, value in row.items()}


def _tuple(value: Any) -> Any:
    if isinstance(value, dict):
        return _tuples(value)
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


#: Where the keys of the first version went.
_ONCE_FLAT = {
    "training": {"updates", "untrained", "padding_rows", "optimizer", "mode", "loss"},
    "interface": {"inputs", "dynamic_axes", "labels", "outputs", "fed"},
    "origin": {"task", "family", "architecture", "attention", "notes", "timings", "check", "gradient_check"},
}


def _from_flat(data: dict[str, Any]) -> dict[str, Any]:
    """The first version had one mapping for all; its streams were counted in two ways, so count anew."""
    gone = ("established", "train", "dropout_streams", "training_switch")
    rest = {k: v for k, v in data.items() if k not in gone}
    # An evaluation graph said that it came from a training export, which is not to be one.
    trains = data.get("train") and data.get("mode") != "evaluation"
    established = [*data.get("established", ()), *([Property.TRAINING] if trains else ())]
    rows: dict[str, Any] = {"version": _VERSION, "established": established}
    for part, keys in _ONCE_FLAT.items():
        rows[part] = {key: rest.pop(key) for key in keys & set(rest)}
    if "training_switch" in data:
        rows["training"]["switch"] = data["training_switch"]
    return {**rows, "extra": rest}
