"""The pass `quantize-static`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fuseline.engine.calibration import Observer
from fuseline.engine.model import Model
from fuseline.engine.quantization.grid import Array, Quantized, quantize_array
from fuseline.engine.quantization.products import Product
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.quantization.fragments.calibrated import grid_of, load_table, range_of, refuse
from fuseline.passes.quantization.fragments.integer import Input, activated
from fuseline.passes.quantization.fragments.products import Job, QuantizeProducts

__all__ = ["QuantizeStatic"]


class QuantizeStatic(QuantizeProducts):
    """MatMul(x, w) → com.microsoft.MatMulIntegerToFloat(QuantizeLinear(x), int8 w); Attention, Conv likewise

    The range of each activation comes from a calibration table. Only what products read is quantized: their
    results stay in float, except those of convolutions, whose operator has no other form.
    """

    name = "quantize-static"
    operators: tuple[str, ...] = ("MatMul", "Gemm", "Attention", "Conv")
    table: str = ""
    """The calibration table, a file."""
    observer: Observer = "min-max"
    percentile: float = 99.99
    activations: Literal["uint8", "int8"] = "uint8"
    symmetric_activations: bool = False

    def begin(self, model: Model, rewriter: Rewriter) -> Job:
        job = super().begin(model, rewriter)
        job.table = load_table(self.name, self.table)
        return job

    def prepare(self, job: Job, product: Product) -> str | None:
        assert job.table is not None
        node = product.node
        reason = refuse(job.model, job.table, product.activation, job.names[node])
        if reason is None and product.kind == "convolution":
            reason = refuse(job.model, job.table, node.outputs[0])
            if product.bias is not None and not np.isfinite(product.bias).all():
                reason = "its bias holds NaN or infinities"
        return reason

    def quantize_input(self, op: Builder, job: Job, product: Product) -> Input:
        found = self._range(job, job.names[product.node])
        scale, zero = op.constant(found[0], "scale"), op.constant(found[1], "zero")
        return Input(op.QuantizeLinear(product.activation, scale, zero), scale, zero)

    def write(self, op: Builder, job: Job, product: Product, weight: Quantized) -> Any:
        if product.kind != "convolution":
            return super().write(op, job, product, weight)
        return self._write_convolution(op, job, product, weight)

    def _range(self, job: Job, name: str | None) -> tuple[Any, Any]:
        assert job.table is not None
        grid = grid_of(self.activations, self.symmetric_activations)
        return range_of(job.table, name, self.observer, self.percentile, grid)

    def _write_convolution(self, op: Builder, job: Job, product: Product, weight: Quantized) -> Any:
        x = self.shared_input(op, job, product)
        out_scale, out_zero = self._range(job, product.node.outputs[0].name)
        bias = None
        if product.bias is not None:
            input_scale, _ = self._range(job, job.names[product.node])
            weight = self._within_bias(product, weight, product.bias, input_scale.astype(np.float64))
            steps = np.rint(product.bias / (input_scale.astype(np.float64) * weight.scale))
            bias = op.constant(steps.astype(np.int32), "bias")
        channels = weight.values.shape[0]
        scale, zero = op.constant(out_scale, "result_scale"), op.constant(out_zero, "result_zero")
        kept = {
            n: a.value
            for n, a in product.node.attributes.items()
            if n not in ("activation", "activation_params")
        }
        made = op.QLinearConv(
            x.integers,
            x.scale,
            x.zero,
            op.constant(weight.values, "weight"),
            op.constant(np.broadcast_to(weight.scale, (channels,)).copy(), "scale"),
            op.constant(np.zeros(channels, np.int8), "zero"),
            scale,
            zero,
            bias,
            **kept,
        )
        return activated(op, product, op.DequantizeLinear(made, scale, zero))

    def _within_bias(self, product: Product, weight: Quantized, bias: Array, input_scale: Array) -> Quantized:
        """The weight, on coarser grids where its bias would have more steps than an int32 counts."""
        scale = np.maximum(weight.scale, np.abs(bias) / (input_scale * 2**30)).astype(np.float32)
        if (scale == weight.scale).all():
            return weight
        zero = np.broadcast_to(weight.zero, scale.shape)
        values = quantize_array(product.matrix(), scale, zero, self.weight_grid(product), 0)
        return Quantized(values, scale, zero, 0)
