"""What a node costs, for the colours of the report: operations, and the bytes of what it makes.

Sizes that a model leaves open are taken as typical ones; the report says which. How many elements are found
only while running (the tokens that are no padding) counts as all of them.
"""

from __future__ import annotations

from typing import Any

from fuseline.engine.analysis import Costs
from fuseline.engine.memory.options import sizes_for
from fuseline.engine.memory.sizes import at_sizes
from fuseline.engine.model import Model
from fuseline.engine.operators.costs import size_in_bytes
from fuseline.engine.shapes.dims import Dim, evaluate

__all__ = ["Measures", "measures"]

Measures = dict[str, tuple[int | None, int]]
"""Node → operations (None where the operator's are not known) and bytes made."""


def measures(model: Model) -> tuple[dict[str, int], Measures]:
    """The sizes that were taken, and what every node costs at them."""
    sizes = sizes_for(model, ())
    found: Measures = {}
    for node, cost in Costs(at_sizes(model, sizes)).items():
        made = sum(_number(size_in_bytes(value), sizes) or 0 for value in node.outputs)
        found[str(node.name)] = (_number(cost.operations, sizes), made)
    return sizes, found


def _number(size: Dim, sizes: dict[str, int]) -> int | None:
    found: Any = evaluate(size, sizes)
    return found if isinstance(found, int) else None
