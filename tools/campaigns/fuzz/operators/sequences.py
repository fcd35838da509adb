"""Sequences that begin and end as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from fuseline.tools.campaigns.fuzz.drawing import FLOATS, Drawing, Unfit, Value
from fuseline.tools.campaigns.fuzz.operators.table import draws

__all__: list[str] = []


def _raw(g: Drawing, op: str, inputs: list[str], **attributes: Any) -> str:
    """A node whose result is a sequence, which is no value for others to pick."""
    name = g.name()
    g.nodes.append(helper.make_node(op, inputs, [name], **attributes))
    return name


@draws(0.6)
def split_and_take(g: Drawing) -> None:
    if g.opset < 11:
        raise Unfit("sequences came later")
    x = g.pick(FLOATS, (1, 3), lambda v: min(v.shape) > 1)
    axis = g.chance.randrange(x.rank)
    keep = g.choose((0, 1))
    sequence = _raw(g, "SplitToSequence", [x.name], axis=axis, keepdims=keep)
    taken = tuple(1 if i == axis else s for i, s in enumerate(x.shape) if keep or i != axis)
    position = g.constant(np.array(g.choose((0, 1, -1)), np.int64))
    name = _raw(g, "SequenceAt", [sequence, position.name])
    g.values.append(Value(name, x.dtype, taken))


@draws(0.5)
def construct_and_join(g: Drawing) -> None:
    if g.opset < 11:
        raise Unfit("sequences came later")
    x = g.pick(FLOATS, (1, 3))
    sequence = _raw(g, "SequenceConstruct", [x.name, x.name])
    name = _raw(g, "ConcatFromSequence", [sequence], axis=0)
    g.values.append(Value(name, x.dtype, (2 * x.shape[0], *x.shape[1:])))
