"""The pass `select-early`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriter import Rewriter
from fuseline.passes.folding.dims import dims_of
from fuseline.passes.training.local_rewrite import Builder, attribute, is_standard, rank_of
from fuseline.passes.training.positionwise import Axes, needed

__all__ = ["SelectEarly"]

_WORTH_IT = "MatMul"
_MOVES_DATA = frozenset(["Reshape", "Transpose"])


class SelectEarly(Pass):
    """Gather(f(x), i) → f(Slice(x, i)): what is computed for one position is not computed for all

    A classifier that reads the first token needs the last layer's feed-forward network, its output projection
    and its queries for that token alone. Results are the same; dropout draws for one position instead of all.
    With `whole-attention` the queries stay: fused attention with packed weights is worth more than they are.
    """

    name = "select-early"
    whole_attention: bool = False

    def run(self, model: Model, rewriter: Rewriter) -> int:
        position = _positions(model)
        for node in list(position):
            if node.op_type != "Gather" or not is_standard(node):
                continue
            selection = _selection(model, node, position, self.whole_attention)
            if isinstance(selection, str):
                rewriter.reject(node, selection)
            elif rewriter.permit(node, self.summary()):
                _Mover(model, rewriter, selection).move()
                position = _positions(model)
        return rewriter.changes


def _positions(model: Model) -> dict[ir.Node, int]:
    return {node: index for index, node in enumerate(model.nodes())}


@dataclass
class _Selection:
    """A Gather of one position, and what in front of it is computed for that position only."""

    node: ir.Node
    index: int
    axis: int
    nodes: dict[ir.Node, tuple[int, Axes]] = field(default_factory=dict)  # → its axis, its operands'


def _selection(
    model: Model, node: ir.Node, position: dict[ir.Node, int], whole_attention: bool
) -> _Selection | str:
    data, which = node.inputs
    index = constant(model, which, at_most=1)
    rank = rank_of(data)
    if data is None or rank is None or index is None or index.ndim != 0:
        return "it does not take one position, known in advance"
    found = _Selection(node, int(index), attribute(node, "axis", 0) % rank)
    wanted: dict[tuple[ir.Node, int], int] = {(node, 0): found.axis}
    for producer in _nearest_first(found, position):
        if whole_attention and _is_product_of_activations(producer):
            continue
        axis = _common_axis(producer.outputs[0], wanted)
        operands = needed(model, producer, axis) if axis is not None else None
        if axis is not None and operands is not None:
            found.nodes[producer] = (axis, operands)
            wanted.update({(producer, place): inner for place, inner in operands.items()})
    _leave_bare_moves(found)
    if not any(n.op_type == _WORTH_IT for n in found.nodes):
        return "no matrix product in front of it is for this position alone"
    return found


def _nearest_first(found: _Selection, position: dict[ir.Node, int]) -> Iterator[ir.Node]:
    """Producers of what the selection needs of one position only, each after all its users.

    Reads `found.nodes` as the caller adds to it: what is not added is not looked behind.
    """
    queue: list[tuple[int, ir.Node]] = []
    seen: set[ir.Node] = set()

    def enqueue(value: ir.Value | None) -> None:
        producer = value.producer() if value is not None else None
        if producer is not None and producer not in seen and producer.graph is found.node.graph:
            seen.add(producer)
            heapq.heappush(queue, (-position[producer], producer))

    enqueue(found.node.inputs[0])
    while queue:
        node = heapq.heappop(queue)[1]
        yield node
        if node in found.nodes:
            for place in found.nodes[node][1]:
                enqueue(node.inputs[place])


def _is_product_of_activations(node: ir.Node) -> bool:
    """Whether both operands come in batches, as in attention: a weight has two dimensions."""
    return node.op_type == "MatMul" and rank_of(node.inputs[1]) != 2


def _leave_bare_moves(found: _Selection) -> None:
    """Behind a node that only moves data the cut is as good, and patterns in front of it stay whole."""
    for node in reversed(list(found.nodes)):
        sources = (node.inputs[place] for place in found.nodes[node][1])
        if node.op_type in _MOVES_DATA and not any(v and v.producer() in found.nodes for v in sources):
            del found.nodes[node]


def _common_axis(value: ir.Value, wanted: dict[tuple[ir.Node, int], int]) -> int | None:
    """The axis along which all users of the value want one position; None if one wants more."""
    axes = {wanted.get((user, place)) for user, place in value.uses()}
    return axes.pop() if len(axes) == 1 and not value.is_graph_output() else None


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
        data = chosen.node.inputs[0]
        assert data is not None
        op = Builder(self.model, chosen.node)
        result = op("Squeeze", self.parts[data, chosen.axis], np.array([chosen.axis]))
        self.rewriter.replace([chosen.node], op.nodes, [(chosen.node.outputs[0], result)])
        self.rewriter.remove(*chosen.nodes)

    def _copy(self, node: ir.Node, axis: int, operands: Axes) -> None:
        """The node on one position of its operands."""
        inputs = list(node.inputs)
        for place, inner in operands.items():
            inputs[place] = self._part(node, inputs[place], inner)
        op = Builder(self.model, node)
        attributes = {name: found.value for name, found in node.attributes.items()}
        whole = node.outputs[0]
        if node.op_type == "Reshape":
            behind = (dims_of(whole) or ())[axis + 1 :]
            inputs[1] = op.constant_ints([0] * axis + [1] + [int(str(d)) for d in behind])
            attributes.pop("allowzero", None)
        value = op(node.op_type, *inputs, domain=node.domain, **attributes)
        _describe(value, whole, axis)
        self.rewriter.insert(node, op.nodes, replaces=[node])
        self.parts[whole, axis] = value

    def _part(self, user: ir.Node, value: ir.Value | None, axis: int) -> ir.Value:
        """One position of a value: computed as such, or cut out of it."""
        assert value is not None
        if (value, axis) not in self.parts:
            op = Builder(self.model, user)
            index = self.selection.index
            end = np.iinfo(np.int64).max if index == -1 else index + 1
            part = op("Slice", value, [index], [end], [axis])
            _describe(part, value, axis)
            self.rewriter.insert(user, op.nodes, replaces=[self.selection.node])
            self.parts[value, axis] = part
        return self.parts[value, axis]


def _describe(part: ir.Value, whole: ir.Value, axis: int) -> None:
    part.type = whole.type
    if whole.shape is not None:
        part.shape = ir.Shape([1 if i == axis else d for i, d in enumerate(whole.shape)])
