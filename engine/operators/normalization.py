"""Normalisations over features."""

from __future__ import annotations

from typing import Any

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators.gradient import BUILT_IN, Prepared
from fuseline.engine.operators.microsoft_schemas import SCHEMAS
from fuseline.engine.operators.operator import Operator
from fuseline.engine.shapes import rules

__all__ = ["NORMALIZATION"]


def _normalization(name: str, **more: Any) -> Operator:
    fields: dict[str, Any] = {"shape": rules.normalization, "cost": costs.per_element(8)}
    return Operator(name=name, declared=SCHEMAS.get(("", name)), **(fields | more))


NORMALIZATION = (
    _normalization("LayerNormalization", affine=(1, 2), gradient=BUILT_IN, positions=positions.normalization),
    # ONNX Runtime's own, in ONNX's domain.
    _normalization(
        "SimplifiedLayerNormalization", affine=(1,), gradient=BUILT_IN, positions=positions.normalization
    ),
    _normalization("RMSNormalization", affine=(1,)),
    _normalization("BatchNormalization", gradient=Prepared("resolve-batch-norm"), cost=costs.per_element(4)),
    _normalization("GroupNormalization", gradient=Prepared()),
    _normalization("InstanceNormalization", gradient=Prepared(), shape=rules.same),
    _normalization("LpNormalization", gradient=Prepared(), shape=rules.same),
    _normalization("LRN", gradient=Prepared(), shape=rules.same),
    _normalization("MeanVarianceNormalization", gradient=Prepared(), shape=None),
)
