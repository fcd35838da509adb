"""The pass `native-linear-bf16`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, rank_of
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite
from fuseline.passes.training.native import EMPTY

__all__ = ["NativeLinearBf16"]


class NativeLinearBf16(LocalRewrite):
    """Gemm(x, W, b), MatMul(x, W) → fuseline.FusedLinearBf16: operands rounded to bf16, sums in fp32

    Its gradient is ours too and computes all three products so, from x kept in bf16. Weights, the results and
    everything else stay in fp32, so that the optimizer works on master weights.
    """

    name = "native-linear-bf16"
    operators = ("Gemm", "MatMul")

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        x, weight, *rest = node.inputs
        assert x is not None
        assert weight is not None
        if x.dtype != ir.DataType.FLOAT or weight.dtype != ir.DataType.FLOAT:
            return f"its operands are {x.dtype} and {weight.dtype}, not float32"
        if rank_of(weight) != 2 or (rank_of(x) or 0) < 2:
            return "it is not a product with one matrix"
        if node.op_type == "MatMul":
            return True
        if attribute(node, "transA", 0) or any(
            attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta")
        ):
            return "its left operand is transposed, or it is scaled"
        bias = rest[0] if rest else None
        columns = weight.shape[0 if attribute(node, "transB", 0) else 1] if weight.shape is not None else None
        if bias is not None and (bias.shape is None or list(bias.shape) != [columns]):
            return f"what it adds has the shape {bias.shape}, not [{columns}]"
        return True

    def build(self, op: Builder, node: ir.Node) -> Sequence[ir.Value | None]:
        x, weight, *rest = node.inputs
        bias = rest[0] if rest and rest[0] is not None else EMPTY
        transposed = int(node.op_type == "Gemm" and bool(attribute(node, "transB", 0)))
        y, *_ = op.FusedLinearBf16(x, weight, bias, _outputs=3, _domain="fuseline", transposed=transposed)
        return [y]
