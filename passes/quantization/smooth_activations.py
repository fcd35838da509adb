"""The pass `smooth-activations`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.calibration import CalibrationTable, Statistics
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.grid import Array
from fuseline.engine.quantization.products import Product, excluded_by, product_of, weighted
from fuseline.engine.quantization.scaling import scale_channels
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.quantization.fragments.calibrated import load_table

__all__ = ["SmoothActivations"]

_MARK = "fuseline.smoothed"


class SmoothActivations(Pass):
    """MatMul(norm(x)·γ, w) → MatMul(norm(x)·(γ/s), s·w): channels that are too large move into the weights

    SmoothQuant's equalisation: s = max|x|^strength / max|w|^(1-strength) for each channel. It is done where
    the factor folds into what stands before, a normalisation that only products read, or the values of an
    attention; elsewhere it would cost a node, and nothing is done. The table is of the model before.
    """

    name = "smooth-activations"
    phase = "inference"
    strength: float = 0.5
    table: str = ""
    """The calibration table, a file; it has to know channels."""
    exclude: tuple[str, ...] = ()
    """Nodes whose inputs stay as they are, by name or pattern."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        table, functions = load_table(self.name, self.table), function_graphs(model)
        groups: dict[ir.Value, list[Product]] = {}
        for node in list(model.nodes()):
            if weighted(node) is None or node.graph in functions:
                continue
            if excluded_by(node, self.exclude) is None:
                product = product_of(model, node)
                if isinstance(product, Product) and product.kind != "convolution":
                    groups.setdefault(product.activation, []).append(product)
        for value, products in groups.items():
            self._smooth(model, rewriter, table, value, products)
        return rewriter.changes

    def _smooth(
        self,
        model: Model,
        rewriter: Rewriter,
        table: CalibrationTable,
        value: ir.Value,
        products: list[Product],
    ) -> None:
        site, seen = products[0].node, table.get(value.name)
        if any(_MARK in p.node.metadata_props for p in products):
            rewriter.reject(site, "its channels have been evened out")
            return
        if seen is None or seen.channels is None:
            rewriter.reject(site, f"the calibration table has no channels of {value.name!r}")
            return
        factors = self._factors(seen, products)
        change = scale_channels(model, value, products, factors)
        if isinstance(change, str):
            rewriter.reject(site, change)
        elif np.allclose(factors, 1.0, rtol=1e-3):
            rewriter.reject(site, "its channels are even already")
        elif rewriter.permit(site, self.summary()):
            change()
            for product in products:
                product.node.metadata_props[_MARK] = self.name

    def _factors(self, seen: Statistics, products: list[Product]) -> Array:
        """What each channel of the activation is divided by."""
        assert seen.channels is not None
        weights = np.max([np.abs(p.matrix()).max(axis=1) for p in products], axis=0)
        activation = np.maximum(seen.channels, 1e-5)
        factors = activation**self.strength / np.maximum(weights, 1e-5) ** (1 - self.strength)
        made: Array = np.maximum(factors, 1e-5).astype(np.float32)
        return made
