"""The pass `merge-slices`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op, nodes_of, only_user, opset_of, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["MergeSlices"]

Array = npt.NDArray[Any]
_PARTS = ("starts", "ends", "axes", "steps")


class MergeSlices(Pass):
    """Slice(Slice(x)) along different axes → Slice(x)

    With constant bounds, from opset 10 on, and where nothing else uses the first.
    """

    name = "merge-slices"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Slice"):
            inner = node.inputs[0].producer() if node.inputs[0] is not None else None
            if inner is None or not is_op(inner, "Slice") or opset_of(model, node) < 10:
                continue
            if inner.graph is not node.graph or only_user(inner.outputs[0]) is not node:
                continue
            first, second = _bounds(model, inner), _bounds(model, node)
            rank = rank_of(inner.inputs[0])
            if first is None or second is None or not _disjoint(first[2], second[2], rank):
                continue
            if rewriter.permit(node, "two slices"):
                with rewriter.building(node) as op:
                    bounds = [np.concatenate(parts) for parts in zip(first, second, strict=True)]
                    merged = op.Slice(inner.inputs[0], *bounds)
                    rewriter.replace([inner, node], op.nodes, [(node.outputs[0], merged)])
        return rewriter.changes


def _bounds(model: Model, node: ir.Node) -> list[Array] | None:
    """starts, ends, axes and steps, all of one length."""
    given = [constant(model, v, at_most=64) if v is not None else None for v in node.inputs[1:]]
    given += [None] * (4 - len(given))
    starts, ends, axes, steps = given
    if starts is None or ends is None:
        return None
    for index, part in ((3, axes), (4, steps)):
        if part is None and index < len(node.inputs) and node.inputs[index] is not None:
            return None
    axes = axes if axes is not None else np.arange(len(starts))
    steps = steps if steps is not None else np.ones(len(starts))
    return [np.asarray(part, np.int64) for part in (starts, ends, axes, steps)]


def _disjoint(a: Array, b: Array, rank: int | None) -> bool:
    """Whether the axes surely differ; a negative axis is the same as some positive one."""
    if rank:
        a, b = a % rank, b % rank
    joined = [*a.tolist(), *b.tolist()]
    one_sign = min(joined) >= 0 or max(joined) < 0
    return one_sign and not set(a.tolist()) & set(b.tolist())
