"""The pass `fold-constants`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.constants import is_constant, tensor_of
from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.nodes import function_graphs, has_references, is_standard, opset_of
from fuseline.engine.operators import Trait, record
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of, known
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.site import Typing
from fuseline.passes.folding.evaluate import evaluate
from fuseline.passes.folding.materialize import materialize

__all__ = ["FoldConstants"]

Array = npt.NDArray[Any]


class FoldConstants(Pass):
    """a node whose output is known → an initializer

    Known means: all inputs are constants, or shape arithmetic proves every element (`Gather(Shape(x), 1)` of
    a float[N,3] is 3, whatever N). Trainable parameters are not constants. A node is left alone if folding
    would make the model grow by more than `growth` bytes, counting the inputs that are no longer needed.
    """

    name = "fold-constants"
    growth: int = 16 << 20

    def run(self, model: Model, rewriter: Rewriter) -> int:
        in_functions, values = function_graphs(model), rewriter.analysis(Contents)
        for graph in list(model.graphs()):
            for node in graph:
                outputs = self._fold(model, node, values, rewriter)
                if outputs is None:
                    continue
                as_nodes = graph in in_functions
                if not _expressible(model, node, outputs, as_nodes):
                    rewriter.reject(node, "its opset has no Constant of that type")
                elif rewriter.permit(node, "constant"):
                    materialize(rewriter, node, outputs, as_nodes=as_nodes)
        return rewriter.changes

    def _fold(
        self, model: Model, node: ir.Node, values: Contents, rewriter: Rewriter
    ) -> Sequence[Array] | None:
        shape_value = values.visit(node)
        if not _is_computation(node) or has_references(node):
            return None
        if shape_value is not None and shape_value.numbers is not None:
            array = np.array(shape_value.numbers, shape_value.dtype.numpy())
            return [array if shape_value.rank else array.reshape(())]
        if node.inputs and all(v is None or is_constant(model, v) for v in node.inputs):
            return self._evaluate(model, node, values, rewriter)
        return None

    def _evaluate(
        self, model: Model, node: ir.Node, values: Contents, rewriter: Rewriter
    ) -> Sequence[Array] | None:
        tensors = [_tensor(v) for v in node.inputs]
        if any(t is not None and t.dtype == ir.DataType.STRING for t in tensors):
            return None
        freed = sum(t.nbytes for t, v in zip(tensors, node.inputs, strict=True) if t and v and _is_last(v))
        expected = _expected_bytes(node)
        if expected is not None and expected - freed > self.growth:
            rewriter.reject(node, _too_large(expected - freed, self.growth))
            return None
        arrays = [t.numpy() if t is not None else None for t in tensors]
        outputs = evaluate(model, node, arrays, opset_of(model, node))
        if outputs is None or len(outputs) != len(node.outputs):
            rewriter.reject(node, "its inputs are constants, but it cannot be evaluated")
            return None
        if not _as_inferred(outputs, infer(node, values)):
            if not is_standard(node):
                shapes = ", ".join(str(list(a.shape)) for a in outputs)
                label = f"the reference of {node.domain}::{node.op_type}"
                raise PassError(f"{label} gave {shapes}, its shape rule something else")
            rewriter.reject(node, "ONNX Runtime gives it another shape than ONNX")
            return None
        grown = sum(a.nbytes for a in outputs) - freed
        if grown > self.growth:
            rewriter.reject(node, _too_large(grown, self.growth))
            return None
        return outputs


def _as_inferred(outputs: Sequence[Array], inferred: Sequence[Typing] | None) -> bool:
    """ONNX Runtime's reductions of nothing keep the shape; what reads the result was written for another."""
    for array, (_, dims) in zip(outputs, inferred or (), strict=False):
        if dims is None:
            continue
        if len(dims) != array.ndim or any(
            isinstance(dim, int) and dim != size for dim, size in zip(dims, array.shape, strict=True)
        ):
            return False
    return True


def _expressible(model: Model, node: ir.Node, outputs: Sequence[Array], as_nodes: bool) -> bool:
    """Whether the opset has what the outputs become: before 9, a Constant node held floats alone."""
    if opset_of(model, node) >= 9 or not (as_nodes or any(v.is_graph_output() for v in node.outputs)):
        return True
    return all(array.dtype.kind == "f" for array in outputs)


def _is_computation(node: ir.Node) -> bool:
    """Whether the outputs follow from the inputs, and somebody here can compute them."""
    operator = record(node)
    if operator is None or not operator.pure or operator.has(Trait.STORAGE):
        return False
    return is_standard(node) or operator.evaluate is not None


def _tensor(value: ir.Value | None) -> Any:
    return tensor_of(value) if value is not None else None


def _is_last(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output() and not value.is_graph_input()


def _expected_bytes(node: ir.Node) -> int | None:
    """The size of the first output, from its inferred shape."""
    output = node.outputs[0]
    shape = known(dims_of(output))
    if shape is None or output.dtype is None or output.dtype.is_string():
        return None
    return int(math.prod(shape) * output.dtype.itemsize)


def _too_large(grown: int, limit: int) -> str:
    return f"the model would grow by {grown:,} bytes; the option growth allows {limit:,}"
