"""The pass `complete-dropout`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.constants import scalar
from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["CompleteDropout"]


class CompleteDropout(LocalRewrite):
    """Dropout → Dropout with its mask as output; Dropout that drops nothing → Identity

    The gradient reads the mask, and scales by 1/(1−ratio) even where the forward operator is switched off.
    """

    name = "complete-dropout"
    operators = ("Dropout",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        return _idle(model, node) or len(node.outputs) < 2 or not node.outputs[1].name

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        x = node.inputs[0]
        assert x is not None
        if _idle(op.model, node):
            mask = node.outputs[1] if len(node.outputs) > 1 else None
            if mask is None or not (mask.uses() or mask.is_graph_output()):
                return [op.Identity(x), None]
            true = ir.tensor([True])
            return [op.Identity(x), op.ConstantOfShape(op.Shape(x), value=true)]
        return op.copy(node, node.inputs, outputs=2)


def _idle(model: Model, node: ir.Node) -> bool:
    """Whether nothing is dropped: not in training mode, or a ratio of 0."""
    ratio = node.inputs[1] if len(node.inputs) > 1 else None
    if ratio is not None and scalar(model, ratio) == 0:
        return True
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return training is None or scalar(model, training) == 0
