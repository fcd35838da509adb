"""The pass `merge-reshapes`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, is_op, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of, equal
from fuseline.engine.shapes.output_dims import output_dims
from fuseline.passes.folding.materialize import new_constant
from fuseline.passes.folding.reshape_target import reshape_target

__all__ = ["MergeReshapes"]

_LAYOUT = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class MergeReshapes(Pass):
    """Reshape(Reshape(x)) → Reshape(x), or x if they cancel; likewise Flatten, Squeeze and Unsqueeze

    The result needs to be known, up to dimensions that a constant Reshape target can express.
    """

    name = "merge-reshapes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions, values = function_graphs(model), rewriter.analysis(Contents)
        for node in nodes_of(model, *_LAYOUT):
            inner = node.inputs[0].producer() if node.inputs[0] is not None else None
            if inner is None or not is_op(inner, *_LAYOUT) or has_references(node) or has_references(inner):
                continue
            source = inner.inputs[0]
            if source is None:
                continue
            if equal(dims_of(source), output_dims(values, node)):
                bypass(rewriter, node, source, "reshapes cancel")
                continue
            target = _target(model, values, node, source)
            if target is not None and rewriter.permit(node, "two reshapes"):
                _merge(rewriter, inner, node, target, as_node=node.graph in in_functions)
        return rewriter.changes


def _target(model: Model, values: Contents, node: ir.Node, source: ir.Value) -> list[int] | None:
    wanted = output_dims(values, node)
    if wanted is not None:
        return reshape_target(dims_of(source), wanted)
    if node.op_type != "Reshape" or bool(node.attributes.get_int("allowzero", 0)):
        return None
    given = constant(model, node.inputs[1], at_most=64)
    return [int(i) for i in given] if given is not None and (given != 0).all() else None


def _merge(rewriter: Rewriter, inner: ir.Node, node: ir.Node, target: list[int], *, as_node: bool) -> None:
    array = np.array(target, np.int64)
    shape = new_constant(rewriter, node, "target", array, as_node=as_node)
    new = ir.node("Reshape", [inner.inputs[0], shape])
    rewriter.replace([inner, node], [new], [(node.outputs[0], new.outputs[0])])
