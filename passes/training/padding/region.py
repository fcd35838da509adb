"""What is computed for some tokens only: all that treats them alike, from the readers of some backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fuseline.engine.analysis.reads import ancestors
from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_op, is_standard, read_by
from fuseline.engine.operators import Trait, record
from fuseline.engine.rewriting.rowwise import is_linear
from fuseline.engine.rewriting.tokens import Grid, Needs, Part, token_operands
from fuseline.engine.shapes.dims import dims_of
from fuseline.kernels import DOMAIN
from fuseline.passes.training.padding.attention import form_of

__all__ = ["TokenRegion", "find_region", "leading_to"]

_NO_DATA = frozenset(["Shape", "Size"])


@dataclass
class TokenRegion:
    """The nodes that are computed for some tokens of a grid, and who reads those."""

    grid: Grid
    nodes: dict[ir.Node, Needs] = field(default_factory=dict)
    selections: list[ir.Node] = field(default_factory=list)
    """Readers that take rows out of a value."""
    keys: dict[ir.Node, Needs] = field(default_factory=dict)
    """Attention of other queries to keys of the grid."""
    shapes: list[ir.Node] = field(default_factory=list)
    """Readers of a shape alone."""
    hindrance: str = ""
    """Who reads all tokens of the last node that could have been computed so."""

    def in_order(self, node: ir.Node) -> bool:
        """Whether its mask may hide from each token those behind it, and else is the same whatever is fed."""
        form = form_of(node)
        additions = form.additions(node) if form is not None and node in self.nodes else []
        if any(_reads_inputs(value) for value in additions):
            return False
        return any(
            (dims_of(value) or ())[-2:] == (self.grid.length, self.grid.length) and _compares(value)
            for value in additions[:1]
        )

    def attention(self) -> list[ir.Node]:
        """All that sees keys of the grid, and hides some."""
        inner = (n for n in self.nodes if (form := form_of(n)) and form.keys_on(n, self.grid))
        return [*inner, *self.keys]


def find_region(model: Model, grid: Grid, ends: Sequence[ir.Value]) -> TokenRegion | str:
    """What of the way to these outputs is computed for some tokens only; or why nothing is.

    What decides which tokens count is computed before any of them: all that leads to it stays as it is.
    """
    relevant = leading_to(model, ends)
    deciding: set[ir.Node] = set()
    while True:
        found = _collect(model, grid, ends, relevant, deciding)
        before = _leading_to_choice(found)
        if before.isdisjoint([*found.nodes, *found.keys, *found.selections]):
            return _obstacle(found) or found
        deciding |= before


def _collect(
    model: Model, grid: Grid, ends: Sequence[ir.Value], relevant: list[ir.Node], deciding: set[ir.Node]
) -> TokenRegion:
    """All that can be computed for some tokens, from the last node backwards; not what decides which."""
    found = TokenRegion(grid)
    wanted: set[tuple[ir.Node, int]] = set()  # operands of which some tokens are enough
    known = set(relevant)
    for node in reversed(relevant):
        needs = _needs(model, node, grid)
        hindrance = _hindrance(node, ends, known, wanted, deciding) if needs is not None else None
        if needs is not None and hindrance is None:
            found.nodes[node] = needs
        elif is_op(node, "Shape") and grid.leading(node.inputs[0]) is not None:
            found.shapes.append(node)
            needs = {0: Part.ROW}
        elif node not in deciding and _selects(model, node, grid):
            found.selections.append(node)
            needs = {0: Part.ROW}
        else:
            found.hindrance = found.hindrance or hindrance or ""
            needs = _keys_of_others(node, grid) if node not in deciding else {}
            if needs:
                found.keys[node] = needs
        wanted.update((node, place) for place, part in needs.items() if part is Part.ROW)
    _drop_readers_of_all(found)
    return found


def _keys_of_others(node: ir.Node, grid: Grid) -> Needs:
    """The keys of attention whose queries are not among them."""
    form = form_of(node)
    return form.keys_on(node, grid) if form is not None and form.queries not in form.keys else {}


def _drop_readers_of_all(found: TokenRegion) -> None:
    """Who reads nothing of what is computed for some tokens goes on as it does."""
    made = {node.outputs[0] for node in found.nodes}
    found.selections = [node for node in found.selections if node.inputs[0] in made]
    found.keys = {
        node: needs
        for node, needs in found.keys.items()
        if any(node.inputs[place] in made for place in needs)
    }


def _leading_to_choice(found: TokenRegion) -> set[ir.Node]:
    """The nodes that are to run before it is known which tokens count.

    A shape that was of a value of tokens is one of the grid's sizes instead.
    """
    shapes = set(found.shapes)
    pending = [value.producer() for value in _choosing(found)]
    seen: set[ir.Node] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen or node in shapes:
            continue
        seen.add(node)
        pending.extend(value.producer() for value in read_by(node))
    return seen


def leading_to(model: Model, ends: Sequence[ir.Value]) -> list[ir.Node]:
    """The nodes that these outputs depend on, in order."""
    needed = ancestors(ends)
    return [node for node in model.graph if any(value in needed for value in node.outputs)]


def _needs(model: Model, node: ir.Node, grid: Grid) -> Needs | None:
    result = node.outputs[0]
    if grid.leading(result) is None or result.dtype is None or not result.dtype.is_floating_point():
        return None
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return None
    form = form_of(node)
    if form is not None:
        return form.needs(node, grid)
    if node.op_type == "FusedRotary" and node.domain == DOMAIN:
        table = grid.part(dims_of(node.inputs[1]) or (None, None), 2)
        return {0: Part.ROW, 1: table, 2: table} if table in (Part.ROW, Part.PLACE) else None
    return token_operands(model, node, grid)


def _hindrance(
    node: ir.Node,
    ends: Sequence[ir.Value],
    relevant: set[ir.Node],
    wanted: set[tuple[ir.Node, int]],
    deciding: set[ir.Node],
) -> str | None:
    """Why a node that treats tokens alike is computed for all."""
    if node in deciding:
        return "which tokens count depends on what is computed of them"
    reader = "the graph" if node.outputs[0] in ends else _reader_of_all(node, relevant, wanted)
    return f"{reader} reads {node.outputs[0].name!r} of all tokens, padding included" if reader else None


def _reader_of_all(node: ir.Node, relevant: set[ir.Node], wanted: set[tuple[ir.Node, int]]) -> str | None:
    """Who needs all tokens of the node's result."""
    for user, place in node.outputs[0].uses():
        inside = user.graph is node.graph
        if (user in relevant or not inside) and (user, place) not in wanted:
            return f"{user.op_type} {user.name!r}"
    return None


def _selects(model: Model, node: ir.Node, grid: Grid) -> bool:
    """Whether it takes rows out of its first operand, whatever these hold."""
    value = node.inputs[0] if node.inputs else None
    leading = grid.leading(value)
    if leading is None or value is None or value.dtype is None or not value.dtype.is_floating_point():
        return False
    if not is_standard(node):
        return False
    rank = len(dims_of(value) or ())
    if node.op_type == "Gather":
        return bool(attribute(node, "axis", 0) % rank < leading)
    if node.op_type == "GatherND":
        last = (dims_of(node.inputs[1]) or (None,))[-1]
        return attribute(node, "batch_dims", 0) == 0 and last == leading
    if node.op_type == "Slice":
        axes = constant(model, node.inputs[3]) if len(node.inputs) > 3 else None
        return axes is not None and all(int(axis) % rank < leading for axis in axes)
    return False


def _obstacle(found: TokenRegion) -> str | None:
    if not any(is_linear(node) for node in found.nodes):
        return found.hindrance or "no product with a matrix in front of it is for single tokens"
    attention = found.attention()
    if not attention:
        return "no attention of it reads keys of single tokens"
    for node in attention:
        reason = _sees_all(node, found)
        if reason is not None:
            return reason
    return None


def _sees_all(node: ir.Node, found: TokenRegion) -> str | None:
    form = form_of(node)
    additions = form.additions(node) if form is not None else []
    if not additions:
        return f"{node.name!r} hides no key"
    if any(len(dims_of(value) or ()) != 4 for value in additions):
        return f"the mask of {node.name!r} has not four axes"
    if found.selections and found.in_order(node):
        return None  # what comes behind the last token that is taken is seen by nobody who counts
    if not any(_reads_inputs(value) for value in additions):
        return f"the mask of {node.name!r} is the same whatever is fed"
    return None


def _choosing(found: TokenRegion) -> list[ir.Value]:
    """What decides which tokens count."""
    values = [value for node in found.selections for value in node.inputs[1:]]
    for node in found.attention():
        form = form_of(node)
        assert form is not None
        values += form.additions(node)
    return [value for value in values if value is not None]


def _reads_inputs(value: ir.Value) -> bool:
    """Whether what the caller feeds, and not only its shape, decides what the value holds."""
    return any(v.is_graph_input() and not v.is_initializer() for v in _deciding(value))


def _compares(value: ir.Value) -> bool:
    """Whether what it holds comes from a comparison, as of positions in a mask that follows their order."""
    producers = (v.producer() for v in _deciding(value))
    operators = (record(p) for p in producers if p is not None)
    return any(operator is not None and operator.has(Trait.ORDERS) for operator in operators)


def _deciding(value: ir.Value) -> set[ir.Value]:
    """All values that decide what it holds; what has its part by its shape alone does not."""
    pending, seen = [value], {value}
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer.op_type in _NO_DATA:
            continue
        new = [v for v in producer.inputs if v is not None and v not in seen]
        seen.update(new)
        pending.extend(new)
    return seen
