"""The pass `quantize-dynamic`."""

from __future__ import annotations

from typing import Any

from fuseline.engine.quantization.grid import Quantized
from fuseline.engine.quantization.products import Product
from fuseline.engine.rewriting.builder import Builder
from fuseline.passes.quantization.fragments.integer import MICROSOFT, Input, activated, zero_point
from fuseline.passes.quantization.fragments.products import Job, QuantizeProducts

__all__ = ["QuantizeDynamic"]


class QuantizeDynamic(QuantizeProducts):
    """MatMul(x, w) → com.microsoft.DynamicQuantizeMatMul(x, int8 w, scales); Gemm, Attention, Conv likewise

    Activations are quantized by their own range at every run, weights once. Products that read one activation
    share its quantization.
    """

    name = "quantize-dynamic"

    def quantize_input(self, op: Builder, job: Job, product: Product) -> Input:
        return Input(*op.DynamicQuantizeLinear(product.activation, _outputs=3))

    def write(self, op: Builder, job: Job, product: Product, weight: Quantized) -> Any:
        if product.kind != "matrix" or self.format != "fused" or not job.alone(product):
            return super().write(op, job, product, weight)
        made = op.DynamicQuantizeMatMul(
            product.activation,
            op.constant(weight.values, "weight"),
            op.constant(weight.scale, "scale"),
            zero_point(op, weight),
            None if product.bias is None else op.constant(product.bias, "bias"),
            _domain=MICROSOFT,
        )
        return activated(op, product, made)
