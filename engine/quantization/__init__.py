"""The arithmetic of quantization: grids, blocks of weights, targets, products to quantize."""

from fuseline.engine.quantization.grid import Grid, Quantized, quantize_array, quantize_weight, scale_and_zero

__all__ = ["Grid", "Quantized", "quantize_array", "quantize_weight", "scale_and_zero"]
