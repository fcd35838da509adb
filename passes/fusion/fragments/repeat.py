"""Grouped key and value heads, repeated to the number of query heads."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.passes.fusion.fragments.values import dims

__all__ = ["unrepeated"]


def unrepeated(value: ir.Value) -> ir.Value:
    """[B,G,T,D] behind Reshape(Expand(Unsqueeze(x, 2))) to [B,H,T,D]; the value itself if it is not that."""
    reshape = value.producer()
    expand = _producer(reshape, "Reshape")
    unsqueeze = _producer(expand, "Expand")
    if reshape is None or expand is None or unsqueeze is None or unsqueeze.op_type != "Unsqueeze":
        return value
    source = unsqueeze.inputs[0]
    whole, parted, small = dims(value), dims(expand.outputs[0]), dims(source)
    if source is None or whole is None or parted is None or small is None or len(parted) != 5:
        return value
    repeats = whole[0] == small[0] and whole[2:] == small[2:]
    return source if repeats and dims(unsqueeze.outputs[0]) == (*small[:2], 1, *small[2:]) else value


def _producer(node: ir.Node | None, op_type: str) -> ir.Node | None:
    """The node in front of a node of the given kind."""
    if node is None or node.op_type != op_type or node.inputs[0] is None:
        return None
    return node.inputs[0].producer()
