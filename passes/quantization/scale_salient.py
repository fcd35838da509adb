"""The pass `scale-salient`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.calibration.moments import Moments, load_moments
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.blocks import quantize_blocks
from fuseline.engine.quantization.gptq import output_error
from fuseline.engine.quantization.grid import Array
from fuseline.engine.quantization.products import Product, excluded_by, product_of, weighted
from fuseline.engine.quantization.scaling import scale_channels
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["ScaleSalient"]

_MARK = "fuseline.salient"
_STRENGTHS = np.linspace(0.0, 1.0, 11)


class ScaleSalient(Pass):
    """MatMul(norm(x)·γ, w) → MatMul(norm(x)·(γ/s), s·w): weights of large inputs will be rounded more finely

    AWQ's idea: s is a power of each channel's mean magnitude, and of several powers the one is taken whose
    rounded weights give the least error of the product, as the second moments of the activations tell it.
    Where the factor folds into nothing before the product, it stays as it is.
    """

    name = "scale-salient"
    phase = "inference"
    moments: str = ""
    """The second moments of activations, a file."""
    block: int = 32
    symmetric: bool = False
    exclude: tuple[str, ...] = ()
    """Nodes that stay as they are, by name or pattern."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        moments, functions = load_moments(self.moments), function_graphs(model)
        groups: dict[ir.Value, list[Product]] = {}
        for node in list(model.nodes()):
            if weighted(node) is None or node.graph in functions:
                continue
            if excluded_by(node, self.exclude) is None:
                product = product_of(model, node)
                if isinstance(product, Product) and product.kind == "matrix":
                    groups.setdefault(product.activation, []).append(product)
        for value, products in groups.items():
            self._scale(model, rewriter, moments.get(value.name or ""), value, products)
        return rewriter.changes

    def _scale(
        self, model: Model, rewriter: Rewriter, seen: Moments | None, value: ir.Value, products: list[Product]
    ) -> None:
        site = products[0].node
        if any(_MARK in p.node.metadata_props for p in products):
            rewriter.reject(site, "its channels have been scaled")
        elif seen is None:
            rewriter.reject(site, f"there are no moments of {value.name!r}")
        else:
            fits = scale_channels(model, value, products, np.ones(len(seen.products), np.float32))
            if isinstance(fits, str):
                rewriter.reject(site, fits)
                return
            factors = self._factors(seen, products)
            if factors is None:
                rewriter.reject(site, "no scaling rounds better than none")
            elif rewriter.permit(site, self.summary()):
                change = scale_channels(model, value, products, factors)
                assert not isinstance(change, str)
                change()
                for product in products:
                    product.node.metadata_props[_MARK] = self.name

    def _factors(self, seen: Moments, products: list[Product]) -> Array | None:
        """What each channel of the activation is divided by, or None where nothing helps."""
        weights = [p.matrix() for p in products]
        magnitude = np.maximum(seen.mean_magnitude, 1e-8)
        best, chosen = float("inf"), None
        for strength in _STRENGTHS:
            factors = magnitude**strength
            factors = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
            error = sum(self._error(w, factors, seen) for w in weights)
            if error < best:
                best, chosen = error, (factors if strength else None)
        return chosen

    def _error(self, weight: Array, factors: Array, seen: Moments) -> float:
        column = factors[:, None]
        rounded = quantize_blocks(weight * column, bits=4, block=self.block, symmetric=self.symmetric)
        return output_error(weight, rounded.restored() / column, seen.products)
