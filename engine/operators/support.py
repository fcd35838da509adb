"""Which element types the runtimes' kernels take: measured, by loading one node after the other.

`tools/campaigns/operator_types.py` writes `support.json`: for each runtime and operator the element types of
the first input that has a choice, from one opset version of the operator to the next. float16 counts where
the runtime casts it.
"""

from __future__ import annotations

import functools
import json
from importlib import resources

import onnx_ir as ir

__all__ = ["STOCK", "TRAINING", "element_types"]

TRAINING = "training"
"""ONNX Runtime 1.19.2 with training, on the CPU."""
STOCK = "stock"
"""The newest plain ONNX Runtime, on the CPU."""


def element_types(runtime: str, operator: str, opset: int = 0) -> frozenset[ir.DataType] | None:
    """What it computes in, in an opset (0: the newest); None where the operator was not measured."""
    versions = _measured(runtime).get(operator, {})
    holding = [since for since in versions if not opset or since <= opset]
    return versions[max(holding)] if holding else None


@functools.cache
def _measured(runtime: str) -> dict[str, dict[int, frozenset[ir.DataType]]]:
    text = resources.files("fuseline.engine.operators").joinpath("support.json").read_text()
    found: dict[str, dict[str, str]] = json.loads(text)[runtime]
    return {
        operator: {
            int(since): frozenset(ir.DataType[name.upper()] for name in names.split())
            for since, names in versions.items()
        }
        for operator, versions in found.items()
    }
