"""Making random operators comparable.

Two versions of a graph draw different random numbers from the same seed as soon as one random node more or
less stands before another. For verification, therefore, training-mode dropout gets the ratio 0 (it passes its
input on, and its mask and gradient are exact), and the Random… operators get a fixed seed of their own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = ["RATIO_INPUTS", "deterministic"]

RATIO_INPUTS: dict[tuple[str, str], int] = {
    ("", "Dropout"): 1,
    ("com.microsoft", "DropoutGrad"): 2,
    ("com.microsoft", "BiasDropout"): 3,
    ("com.microsoft", "BitmaskDropout"): 1,
    ("com.microsoft", "BitmaskDropoutGrad"): 2,
    ("com.microsoft", "BitmaskBiasDropout"): 3,
}
"""(domain, operator) → the input that is the dropout ratio; kernel packages add their own."""

_SEEDED = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}
_SEED = 1.0
_FIRST_OPSET_WITH_RATIO_INPUT = 12


def deterministic(model: Model) -> Model:
    """The model itself if nothing in it is random, or else a copy that is deterministic."""
    if not any(_is_random(node) for node in model.nodes()):
        return model
    copy = model.clone()
    for node in list(copy.nodes()):
        if not _is_random(node):
            continue
        if node.op_type in _SEEDED:
            if "seed" not in node.attributes:
                node.attributes.add(ir.AttrFloat32("seed", _SEED))
        elif node.domain not in ("", "ai.onnx") or copy.opset() >= _FIRST_OPSET_WITH_RATIO_INPUT:
            _zero_ratio(node)
    return copy


def _is_random(node: ir.Node) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return (domain == "" and node.op_type in _SEEDED) or (domain, node.op_type) in RATIO_INPUTS


def _zero_ratio(node: ir.Node) -> None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    index = RATIO_INPUTS[domain, node.op_type]
    given = node.inputs[index] if index < len(node.inputs) else None
    dtype = given.dtype if given is not None and given.dtype is not None else ir.DataType.FLOAT
    shape = _shape(given) if given is not None else ()
    zeros = ir.tensor(np.zeros(shape, dtype.numpy()))
    constant = ir.node("Constant", [], attributes={"value": zeros}, name=f"{node.name}/no-dropout")
    constant.outputs[0].name = f"{node.name}/no-dropout"
    assert node.graph is not None
    node.graph.insert_before(node, constant)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, constant.outputs[0])


def _shape(ratio: ir.Value) -> tuple[int, ...]:
    """The ratio's own shape: some operators take a scalar, some a vector of one."""
    content = ir.convenience.get_const_tensor(ratio, propagate_shape_type=False)
    if content is not None:
        return tuple(content.numpy().shape)
    shape = ratio.shape
    return shape.numpy() if shape is not None and shape.is_static() else ()
