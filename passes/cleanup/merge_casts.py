"""The pass `merge-casts`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import has_references, is_op, nodes_of
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.bypass import bypass
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["MergeCasts"]

_TYPES = ir.DataType
# Type → the types that hold all its values exactly.
_WIDER: dict[ir.DataType, set[ir.DataType]] = {
    _TYPES.BOOL: {
        *(_TYPES.UINT8, _TYPES.INT8, _TYPES.INT16, _TYPES.INT32, _TYPES.INT64),
        *(_TYPES.FLOAT16, _TYPES.FLOAT, _TYPES.DOUBLE),
    },
    _TYPES.UINT8: {_TYPES.INT16, _TYPES.INT32, _TYPES.INT64, _TYPES.FLOAT16, _TYPES.FLOAT, _TYPES.DOUBLE},
    _TYPES.INT8: {_TYPES.INT16, _TYPES.INT32, _TYPES.INT64, _TYPES.FLOAT16, _TYPES.FLOAT, _TYPES.DOUBLE},
    _TYPES.INT16: {_TYPES.INT32, _TYPES.INT64, _TYPES.FLOAT, _TYPES.DOUBLE},
    _TYPES.INT32: {_TYPES.INT64, _TYPES.DOUBLE},
    _TYPES.FLOAT16: {_TYPES.FLOAT, _TYPES.DOUBLE},
    _TYPES.BFLOAT16: {_TYPES.FLOAT, _TYPES.DOUBLE},
    _TYPES.FLOAT: {_TYPES.DOUBLE},
}


class MergeCasts(Pass):
    """Cast(Cast(x)) → Cast(x) where the first one loses nothing; x if the types come back"""

    name = "merge-casts"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in nodes_of(model, "Cast"):
            inner = node.inputs[0].producer() if node.inputs[0] is not None else None
            if inner is None or not is_op(inner, "Cast") or has_references(inner) or has_references(node):
                continue
            source = inner.inputs[0]
            if source is None or source.dtype is None:
                continue
            between, target = inner.attributes.get_int("to", 0), node.attributes.get_int("to", 0)
            if between != source.dtype and between not in _WIDER.get(source.dtype, ()):
                continue
            if target == source.dtype:
                bypass(rewriter, node, source, "casts cancel")
            elif rewriter.permit(node, "two casts"):
                with rewriter.building(node) as op:
                    [cast] = op.copy(node, [source])
                    rewriter.replace([inner, node], op.nodes, [(node.outputs[0], cast)])
        return rewriter.changes
