"""What each node costs, from its operator's record; sizes may stay symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.operators.costs import traffic
from fuseline.engine.shapes.dims import Dim, evaluate
from fuseline.engine.shapes.site import Site
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["Costs", "NodeCost"]


@dataclass(frozen=True)
class NodeCost:
    """Operations, bytes read and written, bytes of scratch memory: of the node and of its tasks, which are
    kept between runs, and those that it takes and gives back.

    None where nothing is known.
    """

    operations: Dim
    traffic: Dim
    workspace: Dim
    task_workspace: Dim = 0
    passing: Dim = 0

    def at(self, sizes: Mapping[str, int]) -> NodeCost:
        """The same with numbers for symbolic sizes."""
        known = (self.operations, self.traffic, self.workspace, self.task_workspace, self.passing)
        return NodeCost(*(evaluate(dim, sizes) for dim in known))


class Costs(dict[ir.Node, NodeCost]):
    """Node → cost, over all graphs; what is inside a branch counts there."""

    def __init__(self, model: Model) -> None:
        values = ShapeValues(model)
        super().__init__((node, _cost(node, values)) for node in model.nodes())


def _cost(node: ir.Node, values: ShapeValues) -> NodeCost:
    operator = record(node)
    if operator is None or operator.cost is None:
        return NodeCost(None, traffic(node), None)
    found = operator.cost(Site(node, values))
    return NodeCost(found.operations, traffic(node), found.workspace, found.task_workspace, found.passing)
