"""The pass `keep-backward`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.pruning import keep_only
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training.cut import Cut
from fuseline.engine.type_names import data_type

__all__ = ["KeepBackward"]


class KeepBackward(Pass):
    """graph that takes the gradients of its outputs → its part from these gradients to those of the weights

    What it reads of the other part, `keep-forward`, becomes an input.
    """

    name = "keep-backward"
    phase = "post-gradient"
    invalidates = (Property.DIFFERENTIATED,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        cut = Cut.of(model)
        if not rewriter.permit("model", self.summary()):
            return 0
        types = _types(model, cut)
        model.graph.outputs[:] = list(cut.gradients)
        for value in cut.crossing:
            read = ir.Value(name=value.name, type=types[str(value.name)], shape=value.shape)
            value.name = rewriter.fresh_name(model.graph, f"{value.name}.cut")
            value.replace_all_uses_with(read)
            model.graph.inputs.append(read)
        keep_only(model, rewriter, cut.gradients)
        return rewriter.changes


def _types(model: Model, cut: Cut) -> dict[str, ir.TypeProtocol]:
    """Nodes that gradients need carry no types; ONNX Runtime infers them."""
    whole = model.clone()
    names = {v.name for v in cut.crossing}
    if not names:
        return {}
    graph = whole.graph
    graph.outputs[:] = [v for node in graph for v in node.outputs if v.name in names]
    session = runtime.session(whole)
    found = {o.name: data_type(o.type) for o in session.get_outputs()}
    return {name: ir.TensorType(dtype) for name, dtype in found.items() if dtype is not None}
