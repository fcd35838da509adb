"""The pass `quantize-weights`."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from fuseline.engine.calibration.moments import Moments, load_moments
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, opset_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.blocks import Blocks, quantize_blocks
from fuseline.engine.quantization.gptq import gptq
from fuseline.engine.quantization.grid import Grid, quantize_weight
from fuseline.engine.quantization.products import Product, excluded_by, product_of, weighted
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.quantization.fragments.integer import MICROSOFT, activated

__all__ = ["QuantizeWeights"]


class QuantizeWeights(Pass):
    """MatMul(x, w) → com.microsoft.MatMulNBits(x, 4-bit w in blocks, scales); Gemm likewise

    Activations stay in float. Of 8 bits, which older runtimes lack in this operator, the weight is an int8
    constant that DequantizeLinear makes real: a smaller file, no faster product.
    """

    name = "quantize-weights"
    phase = "inference"
    bits: Literal[4, 8] = 4
    block: Literal[16, 32, 64, 128, 256] = 32
    """How many weights of a column share a scale."""
    symmetric: bool = False
    """Without zero points: a little smaller, a little less exact."""
    method: Literal["rtn", "gptq"] = "rtn"
    """Round to nearest, or make up for each error in the weights that follow."""
    moments: str = ""
    """The second moments of activations, a file; gptq needs them."""
    accuracy_level: int = 0
    """How the products are computed: 0 as the runtime likes, 1 in float32, 4 in int8."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""
    smallest: int = 2048
    """Weights with fewer elements stay in float."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        moments = load_moments(self.moments) if self.method == "gptq" else {}
        functions = function_graphs(model)
        nodes = [n for n in model.nodes() if weighted(n) is not None]
        # As the moments know them: what a product reads may be renamed before its turn comes.
        names = {n: (n.inputs[0].name or "") if n.inputs[0] is not None else "" for n in nodes}
        for node in nodes:
            product = "it stands in a function" if node.graph in functions else self._product(model, node)
            if isinstance(product, Product):
                reason = self._refusal(product, moments, names[node])
                product = reason or product
            if isinstance(product, str):
                rewriter.reject(node, product)
            elif rewriter.permit(node, self.summary()):
                self._write(rewriter, product, moments.get(names[node]))
        return rewriter.changes

    def _product(self, model: Model, node: ir.Node) -> Product | str:
        pattern = excluded_by(node, self.exclude)
        if pattern is not None:
            return f"{pattern!r} is excluded"
        if self.bits == 8 and opset_of(model, node) < 13:
            return f"opset {opset_of(model, node)} has no DequantizeLinear per channel"
        return product_of(model, node)

    def _refusal(self, product: Product, moments: dict[str, Moments], name: str) -> str | None:
        if product.kind != "matrix":
            return f"{product.node.op_type} has no form with weights in blocks"
        size = product.weight.const_value.size if product.weight.const_value is not None else self.smallest
        if size < self.smallest:
            return f"its weight has {size} elements, fewer than {self.smallest}"
        if self.method == "gptq" and name not in moments:
            return f"there are no moments of {name!r}"
        return None

    def _write(self, rewriter: Rewriter, product: Product, moments: Moments | None) -> None:
        op = Builder(rewriter, product.node)
        made = self._whole(op, product) if self.bits == 8 else self._blocks(op, product, moments)
        rewriter.replace(list(product.replaced), op.nodes, [(product.result, activated(op, product, made))])

    def _whole(self, op: Builder, product: Product) -> ir.Value:
        weight = quantize_weight(product.matrix(), Grid(), axis=1)
        integers, scale = op.constant(weight.values, "weight"), op.constant(weight.scale, "scale")
        made = op.MatMul(product.activation, op.DequantizeLinear(integers, scale, axis=1))
        return made if product.bias is None else op.Add(made, op.constant(product.bias, "bias"))

    def _blocks(self, op: Builder, product: Product, moments: Moments | None) -> ir.Value:
        blocks = self._rounded(product, moments)
        rows, columns = product.matrix().shape
        return op.MatMulNBits(
            product.activation,
            op.constant(blocks.packed(), "weight"),
            op.constant(blocks.scale.reshape(-1), "scale"),
            None if self.symmetric else op.constant(blocks.packed_zero(), "zero"),
            None,
            None if product.bias is None else op.constant(product.bias, "bias"),
            _domain=MICROSOFT,
            K=rows,
            N=columns,
            bits=4,
            block_size=self.block,
            accuracy_level=self.accuracy_level,
        )

    def _rounded(self, product: Product, moments: Moments | None) -> Blocks:
        matrix = product.matrix()
        if moments is None or self.method == "rtn":
            return quantize_blocks(matrix, bits=4, block=self.block, symmetric=self.symmetric)
        return gptq(matrix, moments.products, bits=4, block=self.block, symmetric=self.symmetric)
