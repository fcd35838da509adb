"""Moving a factor per channel from an activation into the weights that read it; results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.initializers import add_initializer
from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name
from fuseline.engine.nodes import attribute
from fuseline.engine.operators import record
from fuseline.engine.quantization.products import Product, operator_of

__all__ = ["scale_channels"]

Array = npt.NDArray[Any]

_ATTENTION = "com.microsoft::Attention"


def scale_channels(
    model: Model, value: ir.Value, products: Sequence[Product], factors: Array
) -> Callable[[], None] | str:
    """What divides channels of `value` by their factors and makes up for it in the products, or why not.

    All readers have to be the given products, and the factor has to fold into what makes the value.
    """
    nodes = {p.node for p in products}
    others = [u for u in value.uses() if u.node not in nodes or u.idx != 0]
    if others or value.is_graph_output():
        reader = others[0].node.name if others else "the graph's output"
        return f"{value.name!r} is also read by {reader!r}"
    producer = value.producer()
    operator = operator_of(producer) if producer is not None else "an input"
    if producer is not None and value.index() == 0:
        known = record(producer)
        if known is not None and known.affine:
            return _through_norm(model, producer, known.affine, products, factors)
        if operator == _ATTENTION:
            return _through_attention(model, producer, products, factors)
    return f"{value.name!r} comes from {operator}, into which no factor folds"


def _through_norm(
    model: Model, norm: ir.Node, places: tuple[int, ...], products: Sequence[Product], factors: Array
) -> Callable[[], None] | str:
    contents: dict[int, Array] = {}
    for place in places:
        value = norm.inputs[place] if place < len(norm.inputs) else None
        if value is None:
            continue
        content = constant(model, value, at_most=None)
        if content is None or content.shape != factors.shape:
            return f"{value.name!r} is no constant of one number per channel"
        contents[place] = content
    if places[0] not in contents:
        return f"{norm.name!r} has no scale to change"

    def change() -> None:
        for place, content in contents.items():
            _replace(model, norm, place, (content / factors).astype(content.dtype))
        _scale_rows(model, products, factors)

    return change


def _through_attention(
    model: Model, node: ir.Node, products: Sequence[Product], factors: Array
) -> Callable[[], None] | str:
    """The values of an attention are weighted sums of its last third of columns."""
    if attribute(node, "qkv_hidden_sizes", None):
        return "queries, keys and values differ in width"
    weight = constant(model, node.inputs[1], at_most=None)
    bias = constant(model, node.inputs[2] if len(node.inputs) > 2 else None, at_most=None)
    if weight is None or weight.shape[1] != 3 * len(factors):
        return f"the weights of {node.name!r} are not constant"
    if bias is None and len(node.inputs) > 2 and node.inputs[2] is not None:
        return f"the bias of {node.name!r} is not constant"
    whole = np.concatenate([np.ones(2 * len(factors), np.float32), factors])

    def change() -> None:
        _replace(model, node, 1, (weight / whole).astype(weight.dtype))
        if bias is not None:
            _replace(model, node, 2, (bias / whole).astype(bias.dtype))
        _scale_rows(model, products, factors)

    return change


def _scale_rows(model: Model, products: Sequence[Product], factors: Array) -> None:
    for product in products:
        content = constant(model, product.weight, at_most=None)
        assert content is not None
        columns = product.kind == "matrix" and attribute(product.node, "transB", 0)
        scaled = content * (factors if columns else factors[:, None])
        _replace(model, product.node, 1, scaled.astype(content.dtype))


def _replace(model: Model, node: ir.Node, place: int, content: Array) -> None:
    """A new initializer in place of one that other nodes may share."""
    graph, old = node.graph, node.inputs[place]
    assert isinstance(graph, ir.Graph)
    assert old is not None
    root = model.graph
    name = fresh_name(f"{old.name}/scaled", lambda n: n in root.initializers)
    node.replace_input_with(place, add_initializer(root, name, content))
