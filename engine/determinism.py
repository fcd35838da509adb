"""Making random operators comparable.

Two versions of a graph draw different random numbers from the same seed as soon as one random node more or
less stands before another. For verification, therefore, training-mode dropout gets the ratio 0 (it passes its
input on, and its mask and gradient are exact), and the Random… operators get a fixed seed of their own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import tensor_of
from fuseline.engine.model import Model
from fuseline.engine.operators import Operator, Trait, record
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["deterministic"]

_SEED = 1.0


def deterministic(model: Model) -> Model:
    """The model itself if nothing in it is random, or else a copy that is deterministic."""
    if not any(_is_random(node) for node in model.nodes()):
        return model
    copy = model.clone()
    rewriter = Rewriter(copy, "deterministic")
    for node in list(copy.nodes()):
        operator = record(node)
        if operator is None or not _is_random(node):
            continue
        if operator.ratio is None:
            _fix_seed(node, operator, copy.opset(operator.domain))
        elif operator.form(copy.opset(operator.domain)).get("ratio", operator.ratio) is not None:
            _zero_ratio(rewriter, node, operator.ratio)
    return copy


def _is_random(node: ir.Node) -> bool:
    operator = record(node)
    return operator is not None and (operator.ratio is not None or operator.has(Trait.RANDOM))


def _fix_seed(node: ir.Node, operator: Operator, opset: int) -> None:
    schema = operator.schema(opset)
    if schema is not None and "seed" in schema.attributes and "seed" not in node.attributes:
        node.attributes.add(ir.AttrFloat32("seed", _SEED))


def _zero_ratio(rewriter: Rewriter, node: ir.Node, index: int) -> None:
    given = node.inputs[index] if index < len(node.inputs) else None
    dtype = given.dtype if given is not None and given.dtype is not None else ir.DataType.FLOAT
    shape = _shape(given) if given is not None else ()
    op = rewriter.builder(node)
    zeros = op.constant(np.zeros(shape, dtype.numpy()), "no-dropout")
    rewriter.insert(node, op.nodes)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, zeros)


def _shape(ratio: ir.Value) -> tuple[int, ...]:
    """The ratio's own shape: some operators take a scalar, some a vector of one."""
    content = tensor_of(ratio)
    if content is not None:
        return tuple(content.numpy().shape)
    shape = ratio.shape
    return shape.numpy() if shape is not None and shape.is_static() else ()
