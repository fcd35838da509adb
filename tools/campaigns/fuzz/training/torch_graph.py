"""A graph run in torch, node by node, and the gradients of its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import helper, numpy_helper

from fuseline.tools.campaigns.fuzz.training.torch_operators import OPERATORS, Call

__all__ = ["Unknown", "loss_and_gradients"]

Array = npt.NDArray[Any]


class Unknown(Exception):
    """The graph has an operator that is not written down here, or none that torch runs."""


def loss_and_gradients(
    model: onnx.ModelProto,
    weights: Mapping[str, Array],
    feed: Mapping[str, Array],
    loss: str,
    *,
    wide: bool = False,
) -> tuple[Array, dict[str, Array]]:
    """The loss, and its gradient by each of the weights; a weight that it does not depend on has none.

    With `wide`, what is float32 is computed as float64.
    """
    contents = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = {n: _tensor(a, wide) for n, a in (contents | dict(feed) | dict(weights)).items()}
    learned = {name: values[name].requires_grad_() for name in weights}
    for node in model.graph.node:
        for name, value in zip(node.output, _run(node, values, wide), strict=False):
            values[name] = value
    result = values[loss]
    if not result.requires_grad or result.dim():
        raise Unknown("loss: it is no number, or depends on no weight")
    found = torch.autograd.grad(result, list(learned.values()), allow_unused=True)
    gradients = {n: g.numpy() for n, g in zip(learned, found, strict=True) if g is not None}
    return result.detach().numpy(), gradients


def _tensor(array: Array, wide: bool) -> torch.Tensor:
    made = torch.tensor(np.array(array))
    return made.double() if wide and made.dtype == torch.float32 else made


def _run(node: onnx.NodeProto, values: Mapping[str, torch.Tensor], wide: bool) -> Sequence[torch.Tensor]:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Constant":
        return [_tensor(numpy_helper.to_array(attributes["value"]), wide)]
    if wide and attributes.get("to") == onnx.TensorProto.FLOAT:
        attributes["to"] = onnx.TensorProto.DOUBLE
    operator = None if node.domain else OPERATORS.get(node.op_type)
    if operator is None:
        raise Unknown(node.op_type)
    call = Call([values[n] if n else None for n in node.input], attributes, len(node.output))
    try:
        made = operator(call)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise Unknown(f"{node.op_type}: {error}") from error
    return made if isinstance(made, tuple) else [made]
