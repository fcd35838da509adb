"""Nodes of the native operators."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.rewriting.builder import Attribute, Builder, Operand
from fuseline.kernels import OPERATORS

__all__ = ["native", "nothing"]


def native(op: Builder, name: str, *inputs: Operand, **attributes: Attribute) -> ir.Value:
    """The first output of a native operator; the others carry what its backward needs."""
    count = len(OPERATORS[name].outputs)
    made: tuple[ir.Value, ...] = op.node(name, *inputs, **attributes, _domain="fuseline", _outputs=count)
    return made[0]


def nothing(op: Builder) -> ir.Value:
    """A tensor without elements: an absent mask, bias or residual (native operators leave no input out)."""
    return op.constant(np.zeros(0, np.float32), "none")
