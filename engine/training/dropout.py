"""Dropout by seed: the graph input that operators draw from, and a stream of numbers of its own for each."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = ["SEED", "next_stream", "seed_input"]

SEED = "dropout.seed"
"""The graph input, int64 [1], from which operators derive what they drop in this step."""


def seed_input(model: Model) -> ir.Value:
    """The graph's dropout seed, which is declared when first needed."""
    found = next((v for v in model.graph.inputs if v.name == SEED), None)
    if found is None:
        found = ir.Value(name=SEED, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
        model.graph.inputs.append(found)
    return found


def next_stream(model: Model) -> int:
    """A stream that no other operator of the graph has: two with one stream would drop the same elements."""
    taken = model.facts.dropout.streams
    if taken is None:
        streams = (n.attributes["stream"].as_int() for n in model.nodes() if "stream" in n.attributes)
        taken = max(streams, default=0)
    model.facts.dropout = replace(model.facts.dropout, streams=taken + 1)
    return taken + 1
