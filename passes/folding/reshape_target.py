"""Writing a symbolic shape as the constant target of a Reshape."""

from __future__ import annotations

from fuseline.engine.shapes.dims import Dims

__all__ = ["reshape_target"]


def reshape_target(source: Dims | None, wanted: Dims) -> list[int] | None:
    """Numbers, with 0 for a dimension taken over from the same place and −1 for at most one other.

    `wanted` may hold −1 itself, and None for what is not known. None if it cannot be written so.
    """
    open_places = [i for i, d in enumerate(wanted) if not isinstance(d, int) or d < 0]
    if any(d == 0 for d in wanted):
        # An empty tensor, or an explicit copy: 0 would be ambiguous.
        return None
    target = [d if isinstance(d, int) else -1 for d in wanted]
    if len(open_places) <= 1:
        return target
    for place in open_places:
        dim = wanted[place]
        if source is not None and place < len(source) and isinstance(dim, str) and dim == source[place]:
            target[place] = 0
    if target.count(-1) > 1:
        return None
    # Where a dimension taken over is 0 at run time, nothing decides a −1, unless the model has it so itself.
    return None if 0 in target and -1 in target and -1 not in wanted else target
