"""The pass `order-for-memory`."""

from __future__ import annotations

from fuseline.engine.memory.options import sizes_for
from fuseline.engine.memory.ordering import best_order
from fuseline.engine.memory.sizes import at_sizes
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["OrderForMemory"]


class OrderForMemory(Pass):
    """nodes in the order of their making → the order of the lowest simulated peak

    What is made long before it is read (masks, expanded tables, casts) moves down to its first reader, where
    that shortens more lifetimes than it lengthens. An order that the simulation does not find better is not
    taken. It pays only where the runtime follows the order (`order="graph"`).
    """

    name = "order-for-memory"
    forbids = (Property.ORDERED,)
    sizes: tuple[str, ...] = ()
    """Symbolic dimensions at which to judge, such as batch=8; others count as 32."""

    def run(self, model: Model, rewriter: Rewriter) -> int:
        concrete = at_sizes(model, sizes_for(model, self.sizes))
        names = best_order(concrete)
        if names is None:
            return 0
        before, after, order = names
        note = f"peak {before / 1e6:.1f} → {after / 1e6:.1f} MB"
        if rewriter.permit("model", note):
            nodes = {node.name: node for node in model.graph}
            rewriter.reorder(model.graph, [nodes[name] for name in order])
        return rewriter.changes
