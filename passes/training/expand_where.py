"""The pass `expand-where`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.engine.shapes.dims import dims_of, equal

__all__ = ["ExpandWhere"]


class ExpandWhere(LocalRewrite):
    """Where(c, a, b) with broadcasting → Where(c, Expand(a), Expand(b))

    The gradient of Where does not sum over the axes that were broadcast; that of Expand does. Branches that
    hold no gradient (constants, whole numbers) stay as they are.
    """

    name = "expand-where"
    operators = ("Where",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        if all(user.op_type == "Shape" for user, _ in node.outputs[0].uses()):
            return False
        return any(_needs(model, node, i) for i in (1, 2))

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        condition, *branches = node.inputs
        needed = [i for i in (1, 2) if _needs(op.model, node, i)]
        # The operator itself knows best what the three broadcast to.
        shape = op.Shape(op.Where(condition, *branches))
        made = [op.Expand(b, shape) if i in needed else b for i, b in enumerate(branches, 1)]
        return op.Where(condition, *made)


def _needs(model: Model, node: ir.Node, index: int) -> bool:
    branch, result = node.inputs[index], node.outputs[0]
    if branch is None or branch.dtype is None or not branch.dtype.is_floating_point():
        return False
    producer = branch.producer()
    if branch.const_value is not None and not model.parameters.is_trainable(branch.name):
        return False
    if producer is not None and producer.op_type in ("Constant", "ConstantOfShape", "Expand"):
        return False
    return not equal(dims_of(branch), dims_of(result))
