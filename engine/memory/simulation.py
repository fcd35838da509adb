"""One run of a graph, simulated: what is alive at every node, and the peak.

The rules are those of ONNX Runtime with its own planning of reuse switched off: memory is taken when a node
runs and given back after the last reader; a view takes none, and an operator that may work in place takes
over an operand of the same size that ends with it; what nobody reads stays to the end. What an operator of
the runtime takes besides is there while it runs. The scratch memory of native operators grows to what the
most demanding one asks for in the first run, and is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fuseline.engine.analysis import Costs, Liveness, Reads
from fuseline.engine.analysis.costs import NodeCost
from fuseline.engine.memory.origins import Halves, Origin, held_by_caller
from fuseline.engine.model import Model
from fuseline.engine.nodes import subgraphs
from fuseline.engine.operators import record
from fuseline.engine.operators.costs import size_in_bytes
from fuseline.engine.rewriting.rewriter import MODULE_KEY

__all__ = ["Holder", "Simulation"]


@dataclass(frozen=True)
class Holder:
    """A piece of memory: the value it was taken for, how large it is, and why it is there."""

    value: str
    bytes: int
    origin: Origin
    module: str
    made_by: str


@dataclass
class _Buffer:
    """Memory that one value took and that its views and in-place successors share."""

    value: ir.Value
    bytes: int
    last: int


@dataclass
class Simulation:
    """Runs the main graph's nodes in the order given (that of the graph by default), at concrete shapes.

    `model` comes from `at_sizes`; a value whose size still is not known counts as nothing and is listed, and
    so is what nodes make in graphs of their own.
    """

    model: Model
    order: Sequence[ir.Node] | None = None
    alive: list[int] = field(default_factory=list)
    """Bytes at every node, with the workspace; what the caller holds is not in it."""
    workspace: int = 0
    """Bytes of scratch memory that native operators keep."""
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._liveness = Liveness(self.model, self.order)
        costs = Costs(self.model)
        needed = [cost for node in self._liveness.order if (cost := costs.get(node)) is not None]
        # Two pieces a thread, each kept at the size that the most demanding node wants.
        self.workspace = sum(
            max((found for found in kind if isinstance(found, int)), default=0)
            for kind in ([c.workspace for c in needed], [c.task_workspace for c in needed])
        )
        self._owner: dict[ir.Value, _Buffer] = {}
        self._ending: defaultdict[int, list[_Buffer]] = defaultdict(list)
        self._spans: list[tuple[int, _Buffer]] = []
        total = 0
        for position, node in enumerate(self._liveness.order):
            total += self._take(position, node) + self._pass(position, costs.get(node), node)
            self._note_inner(node)
            self.alive.append(total + self.workspace)
            ending = {id(b): b for b in self._ending.pop(position, ()) if b.last == position}
            total -= sum(buffer.bytes for buffer in ending.values())

    @property
    def peak(self) -> int:
        return max(self.alive, default=0)

    @property
    def growth(self) -> int:
        """The peak without what stays between runs: how far one run goes beyond what there was before it."""
        return self.peak - self.workspace

    @property
    def peak_at(self) -> int:
        """The position of the first node at which the peak is reached."""
        return self.alive.index(self.peak) if self.alive else 0

    @property
    def nodes(self) -> Sequence[ir.Node]:
        return self._liveness.order

    def holders(self, position: int | None = None) -> list[Holder]:
        """What is alive at a node (that of the peak by default), the largest first."""
        at = self.peak_at if position is None else position
        if not self.alive:
            return []
        origins = self._origins()
        found = [
            self._holder(buffer, origins[id(buffer)])
            for first, buffer in self._spans
            if first <= at <= buffer.last and buffer.bytes
        ]
        if self.workspace:
            found.append(Holder("", self.workspace, Origin.WORKSPACE, "", ""))
        return sorted(found, key=lambda h: -h.bytes)

    def spans(self) -> list[tuple[str, int, int, int]]:
        """(value, first and last node, bytes) of all memory that the run takes, in that order."""
        last = len(self.alive) - 1
        return [(str(b.value.name), first, min(b.last, last), b.bytes) for first, b in self._spans]

    def by_origin(self) -> list[dict[Origin, int]]:
        """The live bytes at every node, by origin."""
        origins = self._origins()
        rows: list[dict[Origin, int]] = [defaultdict(int) for _ in self.alive]
        for first, buffer in self._spans:
            origin = origins[id(buffer)]
            for position in range(first, min(buffer.last, len(rows) - 1) + 1):
                rows[position][origin] += buffer.bytes
        if self.workspace:
            for row in rows:
                row[Origin.WORKSPACE] += self.workspace
        return [dict(row) for row in rows]

    def held(self) -> dict[Origin, int]:
        """What the caller holds during the whole step."""
        totals: dict[Origin, int] = defaultdict(int)
        for value in {*self.model.graph.inputs, *self.model.graph.initializers.values()}:
            totals[held_by_caller(self.model, value)] += self._bytes(value)
        return dict(totals)

    def _origins(self) -> dict[int, Origin]:
        """Buffer (by identity) → what it is for: a value that is only kept as a view is kept all the same."""
        readers, halves = Reads(self.model).readers, Halves(self.model)
        sharing: defaultdict[int, list[ir.Value]] = defaultdict(list)
        for value, buffer in self._owner.items():
            sharing[id(buffer)].append(value)
        return {
            id(buffer): halves.origin(values, [r for value in values for r in readers.get(value, ())])
            if (values := sharing.get(id(buffer)))
            else Origin.WORKSPACE
            for _, buffer in self._spans
        }

    # -- one node

    def _take(self, position: int, node: ir.Node) -> int:
        """Give every output its memory; the bytes that this takes anew."""
        taken = 0
        for index, value in enumerate(node.outputs):
            if not value.name:
                continue
            last = self._last(value, position)
            shared = self._shared(position, node, value) if index == 0 else None
            if shared is not None:
                shared.last = max(shared.last, last)
            else:
                shared = _Buffer(value, self._bytes(value), last)
                self._spans.append((position, shared))
                taken += shared.bytes
            self._owner[value] = shared
            self._ending[shared.last].append(shared)
        return taken

    def _pass(self, position: int, cost: NodeCost | None, node: ir.Node) -> int:
        """What a node takes and gives back while it runs."""
        if cost is None or not isinstance(cost.passing, int) or not cost.passing:
            return 0
        buffer = _Buffer(node.outputs[0], cost.passing, position)
        self._spans.append((position, buffer))
        self._ending[position].append(buffer)
        return buffer.bytes

    def _shared(self, position: int, node: ir.Node, value: ir.Value) -> _Buffer | None:
        """The memory that a result is put into: its operand's if it is a view, or a dying operand's."""
        if value.is_graph_output():
            return None  # the caller gets memory of its own
        source = self._liveness.storage.get(value)
        if source is not None:
            # A view of what the caller holds takes nothing.
            return self._owner.get(source) or _Buffer(value, 0, position)
        operator = record(node)
        wanted = self._bytes(value)
        for index in operator.in_place if operator is not None else ():
            operand = node.inputs[index] if index < len(node.inputs) else None
            buffer = self._owner.get(operand) if operand is not None else None
            if buffer is not None and buffer.last == position and buffer.bytes == wanted and wanted:
                return buffer
        return None

    def _last(self, value: ir.Value, position: int) -> int:
        if not value.uses() and value not in self._liveness.storage:
            # The runtime gives memory back behind a reader: what has none stays, as outputs do.
            return len(self._liveness.order)
        life = self._liveness.lifetimes.get(self._liveness.memory(value))
        return max(position, life.last if life is not None else position)

    def _bytes(self, value: ir.Value) -> int:
        found = size_in_bytes(value)
        if isinstance(found, int):
            return found
        if value.name and value.name not in self.unknown:
            self.unknown.append(value.name)
        return 0

    def _note_inner(self, node: ir.Node) -> None:
        """What is made in a graph inside a node is not simulated."""
        inner = (v for graph in subgraphs(node) for other in graph.all_nodes() for v in other.outputs)
        self.unknown.extend(str(v.name) for v in inner if v.name)

    def _holder(self, buffer: _Buffer, origin: Origin) -> Holder:
        producer = buffer.value.producer()
        module = _module(producer) if producer is not None else ""
        name = producer.op_type if producer is not None else ""
        return Holder(buffer.value.name or "", buffer.bytes, origin, module, name)


def _module(node: ir.Node) -> str:
    return node.metadata_props.get(MODULE_KEY, "")
