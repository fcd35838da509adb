"""A second opinion: what ONNX's own reference implementation makes of a graph.

ONNX Runtime is what graphs are judged on, but it errs itself, mostly where something is empty: a product over
nothing leaves memory as it was, a mean of nothing keeps its shape, a Concat of parts that do not fit passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from fuseline.engine.tolerance import TOLERANCES
from fuseline.engine.verification.compare import compare
from fuseline.engine.verification.empty import is_empty
from fuseline.tools.campaigns.fuzz.cases import Feeds

__all__ = ["confirmed", "runtime_errs"]

Outputs = dict[str, Any]

# The reference rounds differently; what is looked for here is another value altogether.
_ROUGHLY = TOLERANCES["bfloat16"]


def runtime_errs(
    model: onnx.ModelProto, transformed: onnx.ModelProto, feed: Feeds, was: Outputs, now: Outputs | None
) -> bool:
    """Whether what the runtime makes of the graph is no measure for what it makes of the transformed one.

    Where nothing is empty, the reference has to side with that other result; where something is, it has to
    confirm the runtime's own, and must not find the two graphs alike. Of shapes it is always right.
    """
    try:
        said = _reference(model, feed)
    except ValueError:
        return True
    empty = is_empty(feed) or any(0 in tensor.dims for tensor in model.graph.initializer)
    if said is None:
        return empty
    if any(np.shape(said[name]) != np.shape(was[name]) for name in said):
        return True
    if not _agree(was, said):
        return empty or (now is not None and _agree(now, said))
    return empty and now is not None and confirmed(transformed, feed, said)


def confirmed(model: onnx.ModelProto, feed: Feeds, expected: Outputs) -> bool:
    """Whether the reference makes that of a graph; it knows standard operators alone."""
    try:
        said = _reference(model, feed)
    except ValueError:
        return False
    return said is not None and _agree(said, expected)


def _reference(model: onnx.ModelProto, feed: Feeds) -> Outputs | None:
    """None where it has no answer; a ValueError where the graph has none, which the runtime overlooks."""
    names = [o.name for o in model.graph.output]
    try:
        with np.errstate(all="ignore"):
            return dict(zip(names, ReferenceEvaluator(model).run(names, feed), strict=True))
    except Exception as error:  # it raises whatever numpy raises, and has not every operator
        if "concatenation axis must match" in str(error):
            raise ValueError("Concat of parts that do not fit") from error
        return None


def _agree(one: Outputs, other: Outputs) -> bool:
    return all(compare(name, other[name], one[name], _ROUGHLY) is None for name in other)
