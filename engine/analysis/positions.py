"""The order of execution."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model

__all__ = ["Positions"]


class Positions(dict[ir.Node, int]):
    """Node → its place in the order of execution, over all graphs."""

    def __init__(self, model: Model) -> None:
        super().__init__((node, index) for index, node in enumerate(model.nodes()))
