"""The measured element types are those of the installed runtime."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from fuseline.engine.operators import lookup
from fuseline.engine.operators.support import STOCK, TRAINING, element_types
from fuseline.tools.campaigns import operator_types

SAMPLE = (
    "Add",
    "Clip",
    "Conv",
    "Gemm",
    "MatMul",
    "Where",
    "com.microsoft::FusedMatMul",
    "com.microsoft::Gelu",
)


def test_the_facts_are_true() -> None:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    for probe in operator_types.probes():
        if probe["operator"] not in SAMPLE:
            continue
        model = operator_types.decoded(probe)
        loads = operator_types.loads(onnxruntime, settings, model)
        known = element_types(TRAINING, probe["operator"], max(probe["since"], 7))
        assert known is not None
        assert loads == (ir.DataType[probe["type"].upper()] in known), probe["operator"]


@pytest.mark.parametrize(
    ("name", "dtype", "opset", "expected"),
    [
        ("Gemm", ir.DataType.INT32, 0, False),
        ("Gemm", ir.DataType.DOUBLE, 13, True),
        ("MatMul", ir.DataType.INT32, 9, True),
        ("MatMul", ir.DataType.INT32, 8, False),
        ("NonZero", ir.DataType.BFLOAT16, 0, False),
        ("Clip", ir.DataType.BFLOAT16, 13, False),
        ("QLinearConv", ir.DataType.INT8, 0, True),
    ],
)
def test_supports(name: str, dtype: ir.DataType, opset: int, expected: bool) -> None:
    operator = lookup("", name)
    assert operator is not None
    assert operator.supports(dtype, TRAINING, opset) is expected


def test_stock_takes_what_training_takes() -> None:
    for name in SAMPLE:
        training, stock = element_types(TRAINING, name), element_types(STOCK, name)
        assert training is not None
        assert stock is not None
        assert training <= stock
