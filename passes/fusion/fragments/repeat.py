"""Grouped key and value heads, repeated to the number of query heads."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.shapes.dims import dims_of, equal

__all__ = ["unrepeated"]


def unrepeated(value: ir.Value) -> ir.Value:
    """[B,G,T,D] behind Reshape(Expand(Unsqueeze(x, 2))) to [B,H,T,D]; the value itself if it is not that."""
    reshape = value.producer()
    expand = _producer(reshape, "Reshape")
    unsqueeze = _producer(expand, "Expand")
    if reshape is None or expand is None or unsqueeze is None or unsqueeze.op_type != "Unsqueeze":
        return value
    source = unsqueeze.inputs[0]
    whole, parted, small = dims_of(value), dims_of(expand.outputs[0]), dims_of(source)
    if source is None or whole is None or parted is None or small is None or len(parted) != 5:
        return value
    repeats = equal((whole[0], *whole[2:]), (small[0], *small[2:]))
    widened = equal(dims_of(unsqueeze.outputs[0]), (*small[:2], 1, *small[2:]))
    return source if repeats and widened else value


def _producer(node: ir.Node | None, op_type: str) -> ir.Node | None:
    """The node in front of a node of the given kind."""
    if node is None or node.op_type != op_type or node.inputs[0] is None:
        return None
    return node.inputs[0].producer()
