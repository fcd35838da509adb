"""The pass `infer-shapes`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis import Contents
from fuseline.engine.model import Model
from fuseline.engine.nodes import subgraphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.bodies import Carried, carried, has_body, scanned
from fuseline.engine.shapes.dims import Dims, dims_of
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.symbols import Symbols

__all__ = ["InferShapes"]


class InferShapes(Pass):
    """values of unknown type or shape → values with type and (symbolic) shape

    Dimensions are computed forward from the inputs, through shape arithmetic too, so `N` stays `N` and 2·N
    becomes "2*N". What is computed overrules what the file declares, because stale declarations are common. A
    dimension that depends on data gets a name of its own. What a Loop or Scan carries from round to round
    keeps the sizes that are the same in all of them. Weights are not read, and the interface is not touched;
    neither are function bodies, which have no types of their own.
    """

    name = "infer-shapes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        _Walk(model, rewriter).over(model.graph)
        return rewriter.changes


class _Walk:
    """One walk over the model."""

    def __init__(self, model: Model, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.values = rewriter.analysis(Contents)
        self.symbols = Symbols(model)
        self.interface = set(model.graph.outputs)
        self.left: set[ir.Value] = set()

    def over(self, graph: ir.Graph) -> None:
        for node in graph:
            if has_body(node):
                self._rounds(node)
            else:
                for inner in subgraphs(node):
                    self.over(inner)
            self.values.visit(node)
            typings = infer(node, self.values) or [(None, None)] * len(node.outputs)
            for value, (dtype, dims) in zip(node.outputs, typings, strict=False):
                if value not in self.interface:
                    self._update(value, dtype, dims)

    def _rounds(self, node: ir.Node) -> None:
        """Go through a body until what it carries from round to round has the shapes of every round."""
        opset = self.values.opset(node)
        states = list(carried(node, opset))
        self.left.update(s.left for s in states)
        for value, dims in scanned(node, opset):
            self._update(value, None, dims)
        for state in states:
            self._weaken(state, state.at_first())
        while True:
            for inner in subgraphs(node):
                self.over(inner)
            weakened = [self._weaken(state, state.in_every_round()) for state in states]
            if not any(weakened):
                return
            # What was computed in this body was computed from a shape that does not last.
            self.values = self.rewriter.analysis(Contents)
            for inner in subgraphs(node):
                for value in (v for n in inner.all_nodes() for v in n.outputs):
                    # The runtime wants to know how many axes a round gives back.
                    value.shape = _opened(value) if value.is_graph_output() else None

    def _weaken(self, state: Carried, dims: Dims | None) -> bool:
        if state.expects(dims) or not self.rewriter.permit(state.taken.name or "", "type and shape"):
            return False
        state.taken.shape = ir.Shape(dims) if dims is not None else None
        return True

    def _update(self, value: ir.Value, dtype: ir.DataType | None, dims: Dims | None) -> None:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            # A sequence or an optional value has no shape of its own.
            return
        new_type = dtype is not None and value.type is None
        old = dims_of(value)
        if value in self.left:
            merged = dims if dims is not None or old is None else (None,) * len(old)
        else:
            merged = self._merge(value, old, dims)
        if not new_type and merged == old:
            return
        if not self.rewriter.permit(value.name or "", "type and shape"):
            return
        if new_type and dtype is not None:
            value.type = ir.TensorType(dtype)
        if merged is not None:
            value.shape = ir.Shape(merged)

    def _merge(self, value: ir.Value, old: Dims | None, new: Dims | None) -> Dims | None:
        if new is None:
            return old
        if old is None or len(old) != len(new):
            old = (None,) * len(new)
        merged = [a if a is not None else b for a, b in zip(new, old, strict=True)]
        return tuple(d if d is not None else self.symbols.fresh(value, i) for i, d in enumerate(merged))


def _opened(value: ir.Value) -> ir.Shape | None:
    """As many axes as declared, of any length."""
    return None if value.shape is None else ir.Shape([None] * len(value.shape))
