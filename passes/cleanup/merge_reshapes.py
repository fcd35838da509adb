"""The pass `merge-reshapes`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import Dims, dims_of, equal
from fuseline.engine.shapes.output_dims import output_dims
from fuseline.passes.folding.canonicalize_transpose import moves_ones_alone
from fuseline.passes.folding.reshape_target import reshape_target

__all__ = ["MergeReshapes"]

_LAYOUT = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class MergeReshapes(Pass):
    """Reshape(Reshape(x)) → Reshape(x), or x if they cancel; likewise Flatten, Squeeze and Unsqueeze

    The result needs to be known, up to dimensions that a constant Reshape target can express, or to differ
    from x in axes of length 1 alone. A Transpose that only moves axes of length 1 goes into the Reshape
    behind it.
    """

    name = "merge-reshapes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        values = rewriter.analysis(Contents)
        for node in nodes_of(model, *_LAYOUT):
            inner = node.inputs[0].producer() if node.inputs[0] is not None else None
            if inner is None or not _keeps_elements(inner) or has_references(node) or has_references(inner):
                continue
            source = inner.inputs[0]
            if source is None:
                continue
            if equal(dims_of(source), output_dims(values, node)):
                bypass(rewriter, node, source, "reshapes cancel")
                continue
            form = _form(model, values, node, source)
            if form is not None and rewriter.permit(node, "two reshapes"):
                with rewriter.building(node) as op:
                    merged = op.node(form[0], source, form[1])
                    rewriter.replace([inner, node], op.nodes, [(node.outputs[0], merged)])
        return rewriter.changes


def _keeps_elements(node: ir.Node) -> bool:
    return is_op(node, *_LAYOUT) or (is_op(node, "Transpose") and moves_ones_alone(node))


def _form(model: Model, values: Contents, node: ir.Node, source: ir.Value) -> tuple[str, list[int]] | None:
    """The one operator that does what the two do, and its target or axes."""
    given, wanted = dims_of(source), output_dims(values, node)
    target = reshape_target(given, wanted) if wanted is not None else None
    if target is None and given is not None and wanted is not None:
        added, dropped = _added_ones(given, wanted), _added_ones(wanted, given)
        if added is not None:
            return "Unsqueeze", added
        if dropped is not None:
            return "Squeeze", dropped
    target = target or _constant_target(model, node, source)
    return ("Reshape", target) if target is not None else None


def _constant_target(model: Model, node: ir.Node, source: ir.Value) -> list[int] | None:
    """The target that the node has itself, if what it copies has the same places in front of both."""
    if node.op_type != "Reshape" or bool(node.attributes.get_int("allowzero", 0)):
        return None
    target = constant(model, node.inputs[1], at_most=64)
    if target is None:
        return None
    copied = [i for i, size in enumerate(target) if size == 0]
    kept = _same_places(dims_of(source) or (), dims_of(node.inputs[0]) or ())
    return [int(i) for i in target] if kept.issuperset(copied) else None


def _same_places(a: Dims, b: Dims) -> set[int]:
    return {i for i, (one, other) in enumerate(zip(a, b, strict=False)) if one is not None and one == other}


def _added_ones(few: Dims, many: Dims) -> list[int] | None:
    """The axes of length 1 that `many` has beside all of `few`; None if it is not `few` with such axes."""
    axes: list[int] = []
    left = list(few)
    for axis, dim in enumerate(many):
        if left and dim is not None and dim == left[0]:
            left.pop(0)
        elif dim == 1:
            axes.append(axis)
        else:
            return None
    return axes if not left else None
