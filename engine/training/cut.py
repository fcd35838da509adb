"""Where a differentiated graph is cut in two: forward up to the outputs, backward from their gradients on.

What the backward part reads of the forward part becomes an output of one and an input of the other, so that
between the two a loss can be computed by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.analysis import ancestors
from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by

__all__ = ["OBJECTIVE", "OWN_LOSS", "Cut", "output_gradient"]

OBJECTIVE = "objective"
"""Σ output · gradient: its derivative is the backward of any loss computed outside."""
OWN_LOSS = "own_loss"
"""The model's loss inside a graph with an outer one; its gradient would else be called as the input is."""


def output_gradient(output: str) -> str:
    """The input that carries the gradient of an output into the graph."""
    return f"{output}.gradient"


@dataclass(frozen=True)
class Cut:
    """The two parts of a graph that takes the gradients of its outputs, and what crosses between them."""

    outputs: tuple[ir.Value, ...]
    gradients: tuple[ir.Value, ...]
    forward: frozenset[ir.Node]
    backward: frozenset[ir.Node]
    crossing: tuple[ir.Value, ...]

    @classmethod
    def of(cls, model: Model) -> Cut:
        """The cut of a model that `take-output-gradients` and `differentiate` made."""
        graph = model.graph
        if OBJECTIVE not in {v.name for v in graph.outputs}:
            raise ModelError(
                "the graph does not take the gradients of its outputs, so that there is nowhere to cut it",
                hint="run 'take-output-gradients' in front of 'differentiate'",
            )
        seeds = {v.name for v in graph.inputs}
        # What counts or chooses has no gradient, but is an output all the same.
        known = {OWN_LOSS, *model.facts.training.updates, *model.facts.interface.outputs}
        outputs = [v for v in graph.outputs if output_gradient(v.name or "") in seeds or v.name in known]
        gradients = [v for v in graph.outputs if v not in outputs and v.name != OBJECTIVE]
        forward, needed = _makers(outputs), _makers(gradients)
        # Constants are in both parts: they cost nothing, and some operators want to see them.
        backward = (needed - forward) | {n for n in needed if n.op_type == "Constant"}
        crossing = _crossing(forward, backward)
        return cls(tuple(outputs), tuple(gradients), frozenset(forward), frozenset(backward), tuple(crossing))


def _makers(values: Iterable[ir.Value]) -> set[ir.Node]:
    producers = (value.producer() for value in ancestors(values))
    return {node for node in producers if node is not None}


def _crossing(first: set[ir.Node], second: set[ir.Node]) -> list[ir.Value]:
    found: dict[ir.Value, None] = {}
    for node in second:
        for value in read_by(node):
            producer = value.producer()
            if producer in first and producer not in second:
                found[value] = None
    return sorted(found, key=lambda v: v.name or "")
