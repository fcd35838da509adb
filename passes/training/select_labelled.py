"""The pass `select-labelled`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.analysis import Positions
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.positionwise import Axes
from fuseline.engine.rewriting.region import MOVES_DATA, Region, grow
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.rewriting.rowwise import columns, is_linear, row_operands

__all__ = ["SelectLabelled"]

_LABEL_TYPES = (ir.DataType.INT64, ir.DataType.INT32)


class SelectLabelled(Pass):
    """CrossEntropy(f(x), labels) → CrossEntropy(f(x[rows]), labels[rows]) for the rows that are labelled

    A masked language model is labelled at 15 % of its tokens; the head over the vocabulary and the last
    feed-forward network are needed for these alone. Loss and gradients are the same; dropout draws for fewer
    rows. What else the graph returns, such as the scores, stays computed for all rows: where both are asked
    for, the head runs for both.
    """

    name = "select-labelled"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        position = rewriter.analysis(Positions)
        for node in list(position):
            if node.op_type != "SoftmaxCrossEntropyLoss" or not is_standard(node):
                continue
            region = _obstacle(node) or _region(model, node, position)
            if isinstance(region, str):
                rewriter.reject(node, region)
            elif rewriter.permit(node, self.summary()):
                _Mover(model, rewriter, region).move()
                position = rewriter.analysis(Positions)
        return rewriter.changes


def _obstacle(node: ir.Node) -> str | None:
    scores, labels = node.inputs[0], node.inputs[1]
    assert labels is not None
    if "ignore_index" not in node.attributes:
        return "it ignores no label"
    if attribute(node, "reduction", "mean") == "none":
        return "it gives a loss for every row"
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return "it weights the classes"
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return "its log-probabilities are used elsewhere"
    if rank_of(scores) != 2 or rank_of(labels) != 1:
        return "it does not read rows of scores: the classes are not on the last of two axes"
    if labels.dtype not in _LABEL_TYPES:
        return f"the type of its labels is {labels.dtype}, not int64 or int32"
    source = labels.producer()
    if source is None or source.op_type != "Reshape" or (rank_of(source.inputs[0]) or 0) < 2:
        return "it has one label a sample, not one a token"
    return None


def _region(model: Model, node: ir.Node, position: dict[ir.Node, int]) -> Region | str:
    found = Region(node)

    def rule(producer: ir.Node, leading: int) -> Axes | None:
        operands = row_operands(model, producer, leading)
        known = operands and all(columns(producer.inputs[p], n) is not None for p, n in operands.items())
        return operands if known and columns(producer.outputs[0], leading) is not None else None

    grow(found, 1, position, rule, through_outputs=True)
    found.trim(lambda n: n.op_type in MOVES_DATA or (len(found.nodes[n][1]) > 1 and not is_linear(n)))
    if not any(is_linear(n) for n in found.nodes):
        return "no product with a matrix in front of it is for its rows alone"
    return found


class _Mover:
    """Builds the nodes for the labelled rows beside those for all."""

    def __init__(self, model: Model, rewriter: Rewriter, region: Region) -> None:
        self.model = model
        self.rewriter = rewriter
        self.region = region
        self.loss = region.reader
        self.parts: dict[ir.Value, ir.Value] = {}
        # A name of its own: the number of rows is that of no other loss.
        self.count = f"labelled.{self.loss.outputs[0].name}"

    def move(self) -> None:
        scores, labels = self.loss.inputs[0], self.loss.inputs[1]
        assert scores is not None
        assert labels is not None
        self.rows = self._labelled(labels)
        kept = self._part(labels, 1)
        for node in reversed(self.region.nodes):
            self._copy(node)
        op = self.rewriter.builder(self.loss)
        result = op.copy(self.loss, [self.parts[scores], kept], outputs=1)[0]
        self.rewriter.replace([self.loss], op.nodes, [(self.loss.outputs[0], result)])
        self.rewriter.remove(*self.region.nodes)

    def _labelled(self, labels: ir.Value) -> ir.Value:
        """The rows to compute, in order.

        The first is always one of them, since no runtime multiplies matrices without rows; if its label is
        to be ignored, the loss does so.
        """
        op = self.rewriter.builder(self.loss)
        assert labels.dtype is not None
        ignored = np.array(attribute(self.loss, "ignore_index", 0), labels.dtype.numpy())
        counts = op.Not(op.Equal(labels, ignored))
        others = op.Slice(counts, [1], [np.iinfo(np.int64).max], [0])
        wanted = op.Concat(np.array([True]), others, axis=0)
        rows = op.Squeeze(op.NonZero(wanted), [0])
        op.declare(rows, dims=(self.count,))  # a name for what only the run tells
        self.rewriter.insert(self.loss, op.nodes)
        return rows

    def _copy(self, node: ir.Node) -> None:
        """The node on the rows of its operands."""
        leading, operands = self.region.nodes[node]
        inputs = list(node.inputs)
        for place, inner in operands.items():
            value = inputs[place]
            assert value is not None
            inputs[place] = self._part(value, inner)
        whole = node.outputs[0]
        if node.op_type == "Reshape":
            self.parts[whole] = self._reshaped(node, inputs[0])
            return
        axis = attribute(node, "axis", -1)
        changed = {"axis": axis - (leading - 1)} if axis >= 0 else {}
        op = self.rewriter.builder(node)
        self.parts[whole] = op.copy(node, inputs, changed, outputs=1)[0]
        self.rewriter.insert(self.loss, op.nodes, replaces=[node])

    def _reshaped(self, node: ir.Node, rows: ir.Value | None) -> ir.Value:
        """It divides the rows among axes, which are one now, and perhaps what is in a row."""
        leading, operands = self.region.nodes[node]
        width = columns(node.outputs[0], leading)
        assert rows is not None
        if columns(node.inputs[0], operands[0]) == width:
            return rows
        op = self.rewriter.builder(node)
        value = op.Reshape(rows, [-1, *(width or ())])
        self.rewriter.insert(self.loss, op.nodes, replaces=[node])
        return value

    def _part(self, value: ir.Value, leading: int) -> ir.Value:
        """The labelled rows of a value: computed as such, or taken out of it."""
        if value not in self.parts:
            op = self.rewriter.builder(self.loss)
            flat = value
            if leading > 1:
                flat = op.Reshape(value, [-1, *(columns(value, leading) or ())])
            self.parts[value] = op.Gather(flat, self.rows, axis=0)
            self.rewriter.insert(self.loss, op.nodes)
        return self.parts[value]
