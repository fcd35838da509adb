"""Expectations: how many of which operators the result must have, with the nearest misses if it has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fuseline.engine.diff.snapshot import operator
from fuseline.engine.errors import GateFailed, PipelineError
from fuseline.engine.observer import Observer
from fuseline.engine.settings import read_yaml

if TYPE_CHECKING:
    from fuseline.engine.manager import Result
    from fuseline.engine.model import Model
    from fuseline.engine.pass_ import Pass

__all__ = ["Expect", "count_operators", "load_expectations"]

_MISSES_SHOWN = 3


class Expect(Observer):
    """`Expect({"LayerNormalization": 25})`. A plain name counts the operator in every domain;
    `com.microsoft.Gelu` counts it in that one. Subgraphs and functions count."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)
        self.missed: dict[str, list[str]] = {}
        """What was found instead, and the nearest misses, by operator."""

    def finished(self, result: Result) -> None:
        found = count_operators(result.model)
        self.missed = {}
        for op, expected in self.counts.items():
            if found[op] != expected:
                near = _nearest_misses(op, result) if found[op] < expected else ()
                self.missed[op] = [f"  {op}: expected {expected}, found {found[op]}", *near]
        if not self.missed:
            return
        lines = [line for told in self.missed.values() for line in told]
        raise GateFailed("the result does not have the expected operators\n" + "\n".join(lines))


def count_operators(model: Model) -> Counter[str]:
    """How often each operator occurs, by plain name and by name with domain."""
    found: Counter[str] = Counter()
    for node in model.nodes():
        found[node.op_type] += 1
        qualified = operator(node.domain, node.op_type)
        if qualified != node.op_type:
            found[qualified] += 1
    return found


def _nearest_misses(op: str, result: Result) -> Iterable[str]:
    """For every fusion of the pipeline that makes the operator: where it nearly applied, and why not."""
    from fuseline.engine.patterns import Fusion, explain

    plain = op.rsplit(".", 1)[-1]
    fusions: dict[str, Fusion] = {}
    for record in result.records:
        pass_: Pass = record.step.pass_
        if isinstance(pass_, Fusion) and plain in {
            p.rsplit(".", 1)[-1].split("::")[-1] for p in pass_.produces
        }:
            fusions[str(pass_)] = pass_
    if not fusions:
        yield f"    no fusion of the pipeline makes {op}"
    for label, fusion in fusions.items():
        explanation = explain(fusion, result.model, at_most=_MISSES_SHOWN)
        if not explanation.near_misses:
            yield f"    {label}: nothing in the graph comes near"
        for miss in explanation.near_misses:
            yield f"    {label}: {miss}"


def load_expectations(path: str | Path) -> dict[str, int]:
    """Read `operator: count` from YAML, or such a mapping under the key `expect`."""
    data = read_yaml(Path(path), "expectations file")
    if isinstance(data, dict) and isinstance(data.get("expect"), dict):
        data = data["expect"]
    if not isinstance(data, dict) or not all(isinstance(n, int) for n in data.values()):
        raise PipelineError(
            f"{path} must map operators to counts", hint="for example `LayerNormalization: 25`"
        )
    return {str(op): n for op, n in data.items()}
