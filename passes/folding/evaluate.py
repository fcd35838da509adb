"""The value of a node whose inputs are constants: numpy for what is common, ONNX Runtime for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.operators import record
from fuseline.engine.operators.evaluation import Made, Operands, is_numpys

__all__ = ["evaluate"]

Array = npt.NDArray[Any]


def evaluate(model: Model, node: ir.Node, inputs: Sequence[Array | None], opset: int) -> list[Array] | None:
    """The node's outputs, or None if nobody can compute them."""
    operator = record(node)
    rule = operator.evaluate if operator is not None else None
    if rule is not None and all(a is None or is_numpys(a.dtype) for a in inputs):
        made = _by_rule(rule, Operands(node, inputs, opset))
        if made is not None:
            return made if isinstance(made, list) else [made]
    return _run(model, node, inputs)


def _by_rule(rule: Callable[[Operands], Made], operands: Operands) -> Made:
    try:
        with np.errstate(all="ignore"):
            return rule(operands)
    except (ValueError, IndexError, TypeError):
        # Sizes that do not fit together: such a node fails where it is run, and perhaps it never is.
        return None


def _ends_the_process(node: ir.Node, inputs: Sequence[Array | None]) -> bool:
    """Some kernels do not survive operands without elements, nor processors a quotient that there is none of.

    The node itself may never be run.
    """
    if any(array is not None and array.size == 0 for array in inputs):
        return True
    divisor = inputs[1] if is_op(node, "Div", "Mod") and len(inputs) > 1 else None
    # By −1 too: the lowest integer has no counterpart.
    return divisor is not None and divisor.dtype.kind in "iu" and bool(np.isin(divisor, (0, -1)).any())


def _run(model: Model, node: ir.Node, inputs: Sequence[Array | None]) -> list[Array] | None:
    """Run the node alone, exactly as ONNX Runtime would at its place, unless that may end the process."""
    if _ends_the_process(node, inputs):
        return None
    feeds: dict[str, Array] = {}
    values: list[ir.Value | None] = []
    for index, array in enumerate(inputs):
        if array is None:
            values.append(None)
            continue
        tensor = ir.Tensor(array)
        value = ir.val(f"in{index}", dtype=tensor.dtype, shape=array.shape)
        values.append(value)
        feeds[f"in{index}"] = array
    attributes = list(node.attributes.values())
    alone = ir.Node(node.domain, node.op_type, values, attributes, num_outputs=len(node.outputs))
    for index, (output, original) in enumerate(zip(alone.outputs, node.outputs, strict=True)):
        output.name = f"out{index}" if original.name else None
        output.type = original.type
    graph = ir.Graph(
        [v for v in values if v is not None],
        [v for v in alone.outputs if v.name],
        nodes=[alone],
        opset_imports=dict(model.graph.opset_imports),
        name="one",
    )
    try:
        session = runtime.session(Model(ir.Model(graph, ir_version=min(model.ir.ir_version, 10))), threads=1)
        found = runtime.run(session, feeds)
    except (ModelError, TypeError, ValueError):
        return None
    made = list(found.values())
    # Text is no constant to anybody here.
    return made if all(isinstance(a, np.ndarray) and a.dtype.kind != "O" for a in made) else None
