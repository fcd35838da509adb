"""Products of an activation with constant weights: what there is to quantize in a graph, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant, is_constant, tensor_of
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, has_references, is_standard, only_user, rank_of
from fuseline.engine.operators import record
from fuseline.engine.operators.operator import Weighted
from fuseline.engine.quantization.grid import unfit
from fuseline.engine.rewriting.rewriter import MODULE_KEY

__all__ = ["Product", "excluded_by", "family_of", "operator_of", "product_of", "weighted"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Product:
    """A node that multiplies an activation with a weight that is known.

    The weight is [K, N] with every factor and transposition of the node in it, or [out, in, …] of a
    convolution; `axis` is the one of its output channels. `replaced` are the nodes that it stands for: the
    product, and an Add behind it whose constant is its bias.
    """

    node: ir.Node
    kind: Literal["matrix", "attention", "convolution"]
    replaced: tuple[ir.Node, ...]
    bias: Array | None = None

    @property
    def activation(self) -> ir.Value:
        """What the node reads now: a product before it may have been rewritten since it was found."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def weight(self) -> ir.Value:
        value = self.node.inputs[1]
        assert value is not None
        return value

    @property
    def axis(self) -> int:
        return 0 if self.kind == "convolution" else 1

    @property
    def result(self) -> ir.Value:
        return self.replaced[-1].outputs[0]

    def matrix(self) -> Array:
        """The weight as the product needs it."""
        assert self.weight.const_value is not None or self.weight.producer() is not None
        tensor = tensor_of(self.weight)
        assert tensor is not None
        array = np.asarray(tensor.numpy(), np.float32)
        if self.kind != "matrix":
            return array
        array = array.T if attribute(self.node, "transB", 0) else array
        return np.ascontiguousarray(array * np.float32(attribute(self.node, "alpha", 1.0)))


def operator_of(node: ir.Node) -> str:
    """The operator as options and reports write it."""
    return node.op_type if is_standard(node) else f"{node.domain}::{node.op_type}"


def weighted(node: ir.Node) -> Weighted | None:
    """How the node is a product with a weight; None if it is none."""
    operator = record(node)
    return operator.quantizable if operator is not None else None


def family_of(node: ir.Node) -> str:
    """The name that users choose the node's operator by: FusedMatMul is a MatMul, too."""
    product = weighted(node)
    return product.family if product is not None else node.op_type


def excluded_by(node: ir.Node, patterns: Sequence[str]) -> str | None:
    """The first of the patterns that names the node or its torch module, or None."""
    names = [n for n in (node.name, node.metadata_props.get(MODULE_KEY)) if n]
    return next((p for p in patterns for n in names if n == p or fnmatchcase(n, p)), None)


def product_of(model: Model, node: ir.Node) -> Product | str:
    """The product that the node is, or the reason why it cannot be quantized."""
    found = weighted(node)
    if found is None:
        return f"{operator_of(node)} is no product with a weight"
    if has_references(node):
        return "its attributes are parameters of a function"
    activation, weight = node.inputs[0], node.inputs[1]
    if activation is None or weight is None:
        return "an input is absent"
    if not is_constant(model, weight):
        if is_constant(model, activation):
            return f"its weight {activation.name!r} stands on the left"
        return f"{weight.name!r} is not a constant weight"
    # The operators take both of one type, so that the weight's is the activation's.
    if weight.dtype is not ir.DataType.FLOAT:
        return f"{weight.name!r} is {weight.dtype or 'of unknown type'}, not FLOAT"
    refusal = _REFUSALS[found.kind](node, weight)
    if refusal is not None:
        return refusal
    tensor = tensor_of(weight)
    reason = unfit(tensor.numpy()) if tensor is not None else None
    if reason is not None:
        return f"the weight {weight.name!r} {reason}"
    return _with_bias(model, Product(node, found.kind, (node,)))


def _refuse_matrix(node: ir.Node, weight: ir.Value) -> str | None:
    if rank_of(weight) != 2:
        return f"the weight {weight.name!r} has {rank_of(weight)} axes, not 2"
    for name in ("transA", "transBatchA", "transBatchB"):
        if attribute(node, name, 0):
            return f"{name} is set"
    return None


def _refuse_attention(node: ir.Node, weight: ir.Value) -> str | None:
    if attribute(node, "qkv_hidden_sizes", None):
        return "queries, keys and values differ in width"
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        return "past keys and values are not quantized"
    return None if rank_of(weight) == 2 else f"the weight {weight.name!r} is no matrix"


def _refuse_convolution(node: ir.Node, weight: ir.Value) -> str | None:
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return "a residual is added inside it"
    return None


_REFUSALS = {
    "matrix": _refuse_matrix,
    "attention": _refuse_attention,
    "convolution": _refuse_convolution,
}


def _with_bias(model: Model, product: Product) -> Product | str:
    """The product with its own bias, or with that of the Add behind it."""
    node = product.node
    own = node.inputs[2] if len(node.inputs) > 2 else None
    if own is not None:
        content = constant(model, own, at_most=None)
        if content is None:
            return f"the bias {own.name!r} is not constant"
        if product.kind == "matrix":
            return _gemm_bias(product, content)
        return Product(node, product.kind, (node,), content)
    add = only_user(node.outputs[0]) if product.kind == "matrix" else None
    if add is None or add.op_type != "Add" or not is_standard(add) or attribute(node, "activation", None):
        return product
    other = add.inputs[1] if add.inputs[0] is node.outputs[0] else add.inputs[0]
    content = constant(model, other, at_most=None)
    if content is None or content.shape != (_channels(product),):
        return product
    return Product(node, product.kind, (node, add), content)


def _gemm_bias(product: Product, content: Array) -> Product | str:
    channels = _channels(product)
    scaled = content.astype(np.float32) * np.float32(attribute(product.node, "beta", 1.0))
    if scaled.size not in (1, channels) or (scaled.ndim == 2 and scaled.shape[0] != 1):
        return f"the bias has the shape {list(content.shape)}, not one number per column"
    bias = np.ascontiguousarray(np.broadcast_to(scaled.reshape(-1), (channels,)))
    return Product(product.node, "matrix", (product.node,), bias)


def _channels(product: Product) -> int:
    shape = product.weight.shape
    assert shape is not None
    size = shape[0 if attribute(product.node, "transB", 0) else 1]
    assert isinstance(size, int)
    return size
