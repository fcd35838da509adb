"""Where a gradient is needed."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.training.differentiable import nodes_on_gradient_path

__all__ = ["Learns"]


class Learns:
    """The nodes between trainable parameters and the loss, in order, and the values that get a gradient."""

    def __init__(self, model: Model) -> None:
        self.nodes: list[ir.Node] = nodes_on_gradient_path(model)
        self.values: set[ir.Value] = {value for node in self.nodes for value in node.outputs}
