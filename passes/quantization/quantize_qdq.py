"""The pass `quantize-qdq`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from fuseline.engine.calibration import CalibrationTable, Observer
from fuseline.engine.constants import is_constant, tensor_of
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, function_graphs, has_references, is_op, opset_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.quantization.grid import Array, Grid, quantize_weight, unfit
from fuseline.engine.quantization.products import excluded_by, family_of, weighted
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.quantization.fragments.calibrated import grid_of, load_table, range_of, refuse

__all__ = ["EVERYTHING", "SWITCHES", "QuantizeQdq"]

EVERYTHING = (
    *(
        "MatMul",
        "Gemm",
        "Conv",
        "Attention",
        "Gather",
        "Add",
        "Mul",
        "Softmax",
        "Sigmoid",
        "Relu",
        "LeakyRelu",
    ),
    *("Clip", "Concat", "Split", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "MaxPool", "AveragePool"),
    *("GlobalAveragePool", "Pad", "Resize", "Where", "LayerNormalization", "InstanceNormalization"),
)
"""What ONNX Runtime's static quantization takes by default."""
SWITCHES = "fuseline.switches"
"""The input that turns sites on and off, one by one, with the option `switches`."""
_MARK = "fuseline.quantized"


@dataclass
class _Job:
    model: Model
    table: CalibrationTable | None
    ready: dict[tuple[Any, Any], ir.Value] = field(default_factory=dict)
    switches: ir.Value | None = None
    sites: int = 0


class QuantizeQdq(Pass):
    """op(x, w) → op(DequantizeLinear(QuantizeLinear(x)), DequantizeLinear(int8 w)), for runtimes to fuse

    Also the way to try quantization out: with `switches` the model gets an input of that many booleans, and
    each site, in the order of the rewrites, takes its quantized operands only where its own is set.
    """

    name = "quantize-qdq"
    phase = "inference"
    operators: tuple[str, ...] = ("MatMul", "Gemm", "Conv", "Attention")
    """The operators whose inputs are quantized."""
    outputs: bool = False
    """Quantize their results too, for whoever reads them."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""
    dynamic: bool = False
    """Ranges of activations by the run rather than from a table."""
    table: str = ""
    """The calibration table, a file."""
    observer: Observer = "min-max"
    percentile: float = 99.99
    activations: Literal["uint8", "int8"] = "uint8"
    symmetric_activations: bool = False
    weights: Literal["int8", "uint8"] = "int8"
    per_channel: bool = True
    symmetric: bool = True
    reduce_range: bool = False
    smallest: int = 2048
    """Weights of products with fewer elements stay in float."""
    switches: bool = False

    def run(self, model: Model, rewriter: Rewriter) -> int:
        table = None if self.dynamic else load_table(self.name, self.table)
        job, functions = _Job(model, table), function_graphs(model)
        for node in list(model.nodes()):
            if family_of(node) not in self.operators or _MARK in node.metadata_props:
                continue
            reason = "it stands in a function" if node.graph in functions else self._refusal(job, node)
            if reason is not None:
                rewriter.reject(node, reason)
            elif rewriter.permit(node, self.summary()):
                self._quantize(job, rewriter, node)
        if job.switches is not None:
            job.switches.shape = ir.Shape([job.sites])
        return rewriter.changes

    # -- which nodes

    def _refusal(self, job: _Job, node: ir.Node) -> str | None:
        pattern = excluded_by(node, self.exclude)
        if pattern is not None:
            return f"{pattern!r} is excluded"
        if has_references(node):
            return "its attributes are parameters of a function"
        if opset_of(job.model, node) < 13:
            return f"opset {opset_of(job.model, node)} has no DequantizeLinear per channel"
        operands = self._operands(job.model, node)
        if not operands:
            return "it reads nothing of type FLOAT that could be quantized"
        if weighted(node) is not None:
            weight = node.inputs[1]
            if weight is None or not is_constant(job.model, weight):
                return None if self.outputs else "it has no constant weight"
            if weight.const_value is not None and weight.const_value.size < self.smallest:
                return f"its weight has {weight.const_value.size} elements, fewer than {self.smallest}"
        for _, value in operands:
            tensor = tensor_of(value) if is_constant(job.model, value) else None
            reason = unfit(tensor.numpy()) if tensor is not None else None
            if reason is not None:
                return f"{value.name!r} {reason}"
        if job.table is None:
            return None
        looked_up = [v for _, v in operands if not is_constant(job.model, v) and not _off_grid(v)]
        looked_up += [node.outputs[0]] if self._quantizes_output(node) else []
        reasons = (refuse(job.model, job.table, v) for v in looked_up)
        return next((r for r in reasons if r is not None), None)

    def _operands(self, model: Model, node: ir.Node) -> list[tuple[int, ir.Value]]:
        """The inputs to quantize; biases of products and the parameters of norms stay as they are."""
        count = 2 if weighted(node) is not None else 1 if node.op_type.endswith("Normalization") else None
        return [
            (i, v)
            for i, v in enumerate(node.inputs[:count])
            if v is not None and v.dtype is ir.DataType.FLOAT and v.shape is not None
        ]

    def _quantizes_output(self, node: ir.Node) -> bool:
        return self.outputs and node.outputs[0].dtype is ir.DataType.FLOAT and not self.dynamic

    # -- what becomes of them

    def _quantize(self, job: _Job, rewriter: Rewriter, node: ir.Node) -> None:
        graph = node.graph
        assert graph is not None
        op = Builder(rewriter, node)
        switch = self._switch(op, job, node) if self.switches else None
        replaced: list[tuple[int, ir.Value]] = []
        for index, value in self._operands(job.model, node):
            if _off_grid(value):
                continue
            made = self._operand(op, job, node, index, value)
            replaced.append((index, made if switch is None else op.Where(switch, made, value)))
        rewriter.insert(node, op.nodes)
        for index, value in replaced:
            node.replace_input_with(index, value)
        node.metadata_props[_MARK] = self.name
        if self._quantizes_output(node):
            self._quantize_output(job, rewriter, node, switch)

    def _operand(self, op: Builder, job: _Job, node: ir.Node, index: int, value: ir.Value) -> ir.Value:
        if is_constant(job.model, value):
            return self._constant(op, node, index, value)
        key = (node.graph, value)
        if key not in job.ready:
            job.ready[key] = self._activation(op, job, value)
        return job.ready[key]

    def _constant(self, op: Builder, node: ir.Node, index: int, value: ir.Value) -> ir.Value:
        tensor = tensor_of(value)
        assert tensor is not None
        content = np.asarray(tensor.numpy(), np.float32)
        axis = _channel_axis(node, index, content) if self.per_channel else None
        made = quantize_weight(content, Grid(self.weights == "int8", self.symmetric, self.reduce_range), axis)
        integers, scale, zero = (
            op.constant(a, n)
            for a, n in ((made.values, "weight"), (made.scale, "scale"), (made.zero, "zero"))
        )
        result: ir.Value = op.DequantizeLinear(integers, scale, zero, axis=axis)
        return result

    def _activation(self, op: Builder, job: _Job, value: ir.Value) -> ir.Value:
        if job.table is None:
            integers, scale, zero = op.DynamicQuantizeLinear(value, _outputs=3)
        else:
            grid = grid_of(self.activations, self.symmetric_activations)
            made: tuple[Array, Array] = range_of(job.table, value.name, self.observer, self.percentile, grid)
            scale, zero = op.constant(made[0], "scale"), op.constant(made[1], "zero")
            integers = op.QuantizeLinear(value, scale, zero)
        result: ir.Value = op.DequantizeLinear(integers, scale, zero)
        return result

    def _quantize_output(self, job: _Job, rewriter: Rewriter, node: ir.Node, switch: ir.Value | None) -> None:
        """Whoever reads the result reads it off the grid, an output of the graph included."""
        value, graph = node.outputs[0], node.graph
        assert graph is not None
        if (graph, value) in job.ready:
            return
        op = Builder(rewriter, node)
        made = self._activation(op, job, value)
        job.ready[graph, value] = made
        final = made if switch is None else op.Where(switch, made, value)
        inside = set(op.nodes)
        readers = [(u.node, u.idx) for u in value.uses() if u.node not in inside]
        for new in op.nodes:
            rewriter.adopt(graph, new, replaces=(node,))
        graph.insert_after(node, op.nodes)
        for reader, index in readers:
            reader.replace_input_with(index, final)
        if value.is_graph_output():
            name = value.name
            for index, output in enumerate(graph.outputs):
                if output is value:
                    graph.outputs[index] = final
            value.name = rewriter.fresh_name(graph, f"{name}_full")
            final.name = name
            # The table knows the value by its old name.
            job.ready[graph, value] = final

    def _switch(self, op: Builder, job: _Job, node: ir.Node) -> ir.Value:
        if job.switches is None:
            job.switches = ir.Value(name=SWITCHES, type=ir.TensorType(ir.DataType.BOOL))
            job.model.graph.inputs.append(job.switches)
        result: ir.Value = op.Gather(job.switches, np.array(job.sites, np.int64))
        job.sites += 1
        return result


def _channel_axis(node: ir.Node, index: int, content: Array) -> int | None:
    """The axis of output channels of a weight, as the node has it; None of other constants."""
    product = weighted(node)
    if product is None or index != 1:
        return None
    if product.kind != "convolution" and content.ndim != 2:
        # Runtimes fuse the pairs into products that know channels of matrices alone.
        return None
    if product.kind == "convolution":
        return 0
    return 0 if attribute(node, "transB", 0) else content.ndim - 1


def _off_grid(value: ir.Value) -> bool:
    """Whether the value has been quantized and dequantized, by a switch or always."""
    producer = value.producer()
    if is_op(producer, "Where"):
        assert producer is not None
        chosen = producer.inputs[1]
        producer = chosen.producer() if chosen is not None else None
    return is_op(producer, "DequantizeLinear")
