"""The base of passes that make integer products: which nodes, which weights, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import onnx_ir as ir

from fuseline.engine.calibration import CalibrationTable
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, opset_of
from fuseline.engine.operators.operator import Weighted
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.grid import Grid, Quantized, quantize_weight
from fuseline.engine.quantization.products import Product, excluded_by, product_of, weighted
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.quantization.fragments.integer import (
    Format,
    Input,
    write_attention,
    write_convolution,
    write_matrix,
)

__all__ = ["Job", "QuantizeProducts"]


@dataclass
class Job:
    """One run of a pass: what is shared between its rewrites."""

    model: Model
    products: list[Product]
    inputs: dict[tuple[Any, Any], Input] = field(default_factory=dict)
    table: CalibrationTable | None = None

    def __post_init__(self) -> None:
        self.planned = {p.node for p in self.products}
        # As the calibration table knows them: what a product reads may be renamed before its turn comes.
        self.names = {p.node: p.activation.name for p in self.products}

    def alone(self, product: Product) -> bool:
        """Whether no other product reads the same activation in the same graph."""
        if _place(product) in self.inputs:
            return False
        graph = product.node.graph
        readers = {
            u.node for u in product.activation.uses() if u.node in self.planned and u.node.graph is graph
        }
        return len(readers) == 1


class QuantizeProducts(Pass):
    """Base: finds the products, quantizes their weights, and lets a subclass quantize the activations."""

    phase = "inference"
    operators: tuple[str, ...] = ("MatMul", "Gemm", "Attention")
    """The operators to quantize: MatMul, Gemm, Attention, Conv."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""
    only: tuple[str, ...] = ()
    """If given, nothing but these nodes, by name or pattern."""
    smallest: int = 2048
    """Weights with fewer elements stay in float: they cost accuracy and save nothing."""
    weights: Literal["int8", "uint8"] = "int8"
    per_channel: bool = True
    """A scale for each output channel of a weight rather than one for all."""
    symmetric: bool = True
    """Weights around zero, without zero points."""
    reduce_range: bool = False
    """Weights of 7 bits, for processors that saturate sums of 8-bit products."""
    format: Format = "fused"
    """ONNX Runtime's fused operators, or those of the standard alone."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        job = self.begin(model, rewriter)
        for product in job.products:
            x = self.prepare(job, product)
            if isinstance(x, str):
                rewriter.reject(product.node, x)
            elif rewriter.permit(product.node, self.summary()):
                self._write(job, rewriter, product)
        return rewriter.changes

    def begin(self, model: Model, rewriter: Rewriter) -> Job:
        """The products to quantize; the others are rejected with their reasons."""
        found: list[Product] = []
        functions = function_graphs(model)
        for node in list(model.nodes()):
            kind = weighted(node)
            if kind is None:
                continue
            product = self._candidate(model, node, kind, functions)
            if isinstance(product, str):
                rewriter.reject(node, product)
            else:
                found.append(product)
        return Job(model, found)

    def _candidate(
        self, model: Model, node: ir.Node, kind: Weighted, functions: Iterable[Any]
    ) -> Product | str:
        if kind.family not in self.operators:
            return f"{kind.family} is not among the operators to quantize"
        pattern = excluded_by(node, self.exclude)
        if pattern is not None:
            return f"{pattern!r} is excluded"
        if self.only and excluded_by(node, self.only) is None:
            return "it is not among the only nodes to quantize"
        if node.graph in functions:
            return "it stands in a function"
        if opset_of(model, node) < 11:
            return f"opset {opset_of(model, node)} has no DynamicQuantizeLinear"
        if kind.kind == "attention" and self.format == "standard":
            return "the standard has no quantized attention"
        product = product_of(model, node)
        if isinstance(product, Product):
            size = product.weight.const_value.size if product.weight.const_value is not None else 0
            if product.weight.const_value is not None and size < self.smallest:
                return f"its weight has {size} elements, fewer than {self.smallest}"
        return product

    def prepare(self, job: Job, product: Product) -> str | None:
        """A reason why this activation cannot be quantized, or None."""
        return None

    def quantize_input(self, op: Builder, job: Job, product: Product) -> Input:
        """Nodes that quantize an activation."""
        raise NotImplementedError

    def write(self, op: Builder, job: Job, product: Product, weight: Quantized) -> Any:
        """The integer product on an activation that other products may share."""
        x = self.shared_input(op, job, product)
        if product.kind == "matrix":
            return write_matrix(op, x, product, weight, self.format)
        if product.kind == "attention":
            return write_attention(op, x, product, weight)
        return write_convolution(op, x, product, weight)

    def weight_grid(self, product: Product) -> Grid:
        if product.kind == "convolution":
            return Grid(signed=True, symmetric=True, reduced=self.reduce_range)
        return Grid(self.weights == "int8", self.symmetric, self.reduce_range)

    def _write(self, job: Job, rewriter: Rewriter, product: Product) -> None:
        graph = product.node.graph
        assert graph is not None
        op = Builder(rewriter, product.node)
        made = self.write(op, job, product, self._weight(job, product))
        rewriter.replace(list(product.replaced), op.nodes, [(product.result, made)])

    def _weight(self, job: Job, product: Product) -> Quantized:
        axis = product.axis if self.per_channel else None
        return quantize_weight(product.matrix(), self.weight_grid(product), axis)

    def shared_input(self, op: Builder, job: Job, product: Product) -> Input:
        """The quantized activation, made by the first product of the graph that reads it."""
        place = _place(product)
        if place not in job.inputs:
            job.inputs[place] = self.quantize_input(op, job, product)
        return job.inputs[place]


def _place(product: Product) -> tuple[Any, Any]:
    return product.node.graph, product.activation
