"""Which pass could help: what the ready pipeline would still do, by the time of the nodes it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.patterns import Fusion, explain
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.plurals import counted
from fuseline.engine.properties import Property
from fuseline.tools.measuring.profile import Profile

__all__ = ["Hint", "hints", "remaining"]

_HOT = 0.01
"""The share of a run from which a node is worth a word."""


@dataclass(frozen=True)
class Hint:
    """A pass that would apply, or nearly does; `share` is the part of the run in the nodes concerned."""

    name: str
    share: float
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def remaining(model: Model) -> Pipeline:
    """The passes that may still be run on the graph: of a training step, those behind the gradient."""
    if not model.has(Property.DIFFERENTIATED):
        return Pipeline.resolve("inference")
    passes = list(Pipeline.resolve("training").passes())
    start = next(i for i, p in enumerate(passes) if p.name == "differentiate")
    return Pipeline.of(*passes[start + 1 :])


def hints(profile: Profile, model: Model, *, at_most: int = 8) -> list[Hint]:
    """Those with the largest share first."""
    seconds: dict[str, float] = defaultdict(float)
    for node in profile.nodes:
        seconds[node.name] += node.seconds
    whole = sum(seconds.values()) or 1.0
    shares = {name: value / whole for name, value in seconds.items()}
    found = [*_applicable(model, shares), *_near(model, shares)]
    return sorted(found, key=lambda hint: -hint.share)[:at_most]


def _applicable(model: Model, shares: dict[str, float]) -> Iterator[Hint]:
    """What each pass would take away."""
    try:
        result = remaining(model).run(model)
    except FuselineError:
        return
    touched: dict[str, set[str]] = defaultdict(set)
    changes: dict[str, int] = defaultdict(int)
    for record in result.records:
        changes[record.name] += record.changes
        touched[record.name].update(name for rewrite in record.rewrites for name in rewrite.removed)
    for name, nodes in touched.items():
        share = sum(shares.get(node, 0.0) for node in nodes)
        if changes[name] and share:
            yield Hint(name, share, f"applies in {counted(changes[name], 'place')}")


def _near(model: Model, shares: dict[str, float]) -> Iterator[Hint]:
    """Fusions that nearly match at a node that takes time."""
    for pass_ in remaining(model).passes():
        if not isinstance(pass_, Fusion):
            continue
        nearest: dict[str, Hint] = {}
        for miss in explain(pass_, model, at_most=20).near_misses:
            share = max(shares.get(miss.root, 0.0), shares.get(miss.node, 0.0))
            if share >= _HOT and miss.root not in nearest:
                nearest[miss.root] = Hint(pass_.name, share, f"nearly applies at {miss}")
        yield from nearest.values()
