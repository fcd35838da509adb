"""The pass `separate-initializers`."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["SeparateInitializers"]

_FIRST_WITH_SEPARATE = 4


class SeparateInitializers(Pass):
    """IR < 4, weights listed as inputs → IR 4, weights as initializers alone

    Before IR 4 every initializer had to be declared as an input as well, though nobody could feed it. From
    IR 4 on that would mean a default value, and new constants need no such declaration. What can be fed
    stays the same.
    """

    name = "separate-initializers"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        version = model.ir.ir_version
        if version >= _FIRST_WITH_SEPARATE:
            return 0
        if not rewriter.permit("model", f"IR {version} → {_FIRST_WITH_SEPARATE}"):
            return 0
        fed = [v for v in model.graph.inputs if not v.is_initializer()]
        rewriter.count("initializers", len(model.graph.inputs) - len(fed))
        model.graph.inputs[:] = fed
        model.ir.ir_version = _FIRST_WITH_SEPARATE
        return rewriter.changes
