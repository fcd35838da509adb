"""The pass `select-early`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fuseline.engine.analysis import Positions
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard, rank_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.builder import Attribute
from fuseline.engine.rewriting.positionwise import Axes, needed
from fuseline.engine.rewriting.region import MOVES_DATA, Region, grow
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of

__all__ = ["SelectEarly"]

_WORTH_IT = "MatMul"


class SelectEarly(Pass):
    """Gather(f(x), i) → f(Slice(x, i)): what is computed for one position is not computed for all

    A classifier that reads the first token needs the last layer's feed-forward network, its output projection
    and its queries for that token alone. Results are the same; dropout draws for one position instead of all.
    With `whole-attention` the queries stay: fused attention with packed weights is worth more than they are.
    """

    name = "select-early"
    whole_attention: bool = False

    def run(self, model: Model, rewriter: Rewriter) -> int:
        position = rewriter.analysis(Positions)
        for node in list(position):
            if node.op_type != "Gather" or not is_standard(node):
                continue
            selection = _selection(model, node, position, self.whole_attention)
            if isinstance(selection, str):
                rewriter.reject(node, selection)
            elif rewriter.permit(node, self.summary()):
                _Mover(model, rewriter, selection).move()
                position = rewriter.analysis(Positions)
        return rewriter.changes


@dataclass
class _Selection(Region):
    """A Gather of one position, and what in front of it is computed for that position only."""

    index: int = 0
    axis: int = 0


def _selection(
    model: Model, node: ir.Node, position: dict[ir.Node, int], whole_attention: bool
) -> _Selection | str:
    data, which = node.inputs
    index = constant(model, which, at_most=1)
    rank = rank_of(data)
    if data is None or rank is None or index is None or index.ndim != 0:
        return "it does not take one position, known in advance"
    found = _Selection(node, index=int(index), axis=attribute(node, "axis", 0) % rank)

    def rule(producer: ir.Node, axis: int) -> Axes | None:
        kept = whole_attention and _is_product_of_activations(producer)
        return None if kept else needed(model, producer, axis)

    grow(found, found.axis, position, rule)
    # Behind a node that only moves data the cut is as good, and patterns in front of it stay whole.
    found.trim(lambda n: n.op_type in MOVES_DATA)
    if not any(n.op_type == _WORTH_IT for n in found.nodes):
        return "no matrix product in front of it is for this position alone"
    return found


def _is_product_of_activations(node: ir.Node) -> bool:
    """Whether both operands come in batches, as in attention: a weight has two dimensions."""
    return node.op_type == "MatMul" and rank_of(node.inputs[1]) != 2


class _Mover:
    """Builds the nodes for one position beside those for all."""

    def __init__(self, model: Model, rewriter: Rewriter, selection: _Selection) -> None:
        self.model = model
        self.rewriter = rewriter
        self.selection = selection
        self.parts: dict[tuple[ir.Value, int], ir.Value] = {}

    def move(self) -> None:
        chosen = self.selection
        for node in reversed(chosen.nodes):
            axis, operands = chosen.nodes[node]
            self._copy(node, axis, operands)
        data = chosen.reader.inputs[0]
        assert data is not None
        op = self.rewriter.builder(chosen.reader)
        result = op.Squeeze(self.parts[data, chosen.axis], np.array([chosen.axis]))
        self.rewriter.replace([chosen.reader], op.nodes, [(chosen.reader.outputs[0], result)])
        self.rewriter.remove(*chosen.nodes)

    def _copy(self, node: ir.Node, axis: int, operands: Axes) -> None:
        """The node on one position of its operands."""
        inputs = list(node.inputs)
        for place, inner in operands.items():
            inputs[place] = self._part(node, inputs[place], inner)
        op = self.rewriter.builder(node)
        whole = node.outputs[0]
        changed: dict[str, Attribute] = {}
        if node.op_type == "Reshape":
            behind = (dims_of(whole) or ())[axis + 1 :]
            inputs[1] = op.constant([0] * axis + [1] + [int(str(d)) for d in behind])
            changed["allowzero"] = None
        value = op.copy(node, inputs, changed)[0]
        self.rewriter.insert(node, op.nodes, replaces=[node])
        self.parts[whole, axis] = value

    def _part(self, user: ir.Node, value: ir.Value | None, axis: int) -> ir.Value:
        """One position of a value: computed as such, or cut out of it."""
        assert value is not None
        if (value, axis) not in self.parts:
            op = self.rewriter.builder(user)
            index = self.selection.index
            end = np.iinfo(np.int64).max if index == -1 else index + 1
            part = op.Slice(value, [index], [end], [axis])
            # The reader takes this position, so there is one, which no shape says of a symbolic size.
            dims = dims_of(value)
            assert dims is not None
            op.declare(part, dims=(*dims[:axis], 1, *dims[axis + 1 :]))
            self.rewriter.insert(user, op.nodes, replaces=[self.selection.reader])
            self.parts[value, axis] = part
        return self.parts[value, axis]
