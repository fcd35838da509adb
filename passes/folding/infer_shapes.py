"""The pass `infer-shapes`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name
from fuseline.engine.nodes import STANDARD_DOMAINS, has_references, is_op, subgraphs
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.passes.folding.dims import Dim, Dims, dims_of
from fuseline.passes.folding.schema_inference import infer_from_schema
from fuseline.passes.folding.shape_rules import RULES as COMMON_RULES
from fuseline.passes.folding.shape_rules import Site, Typing
from fuseline.passes.folding.shape_rules_nn import convolution, global_pooling
from fuseline.passes.folding.shape_values import ShapeValues

__all__ = ["InferShapes"]

# Before opset 7 elementwise operators broadcast by attribute.
_OLDEST_FOR_RULES = 7
RULES = {
    **COMMON_RULES,
    "Conv": convolution,
    "GlobalAveragePool": global_pooling,
    "GlobalMaxPool": global_pooling,
}
_LIKE_FIRST_INPUT = {"Gelu", "FastGelu", "QuickGelu", "BiasGelu", "BiasSplitGelu"}


class InferShapes(Pass):
    """values of unknown type or shape → values with type and (symbolic) shape

    Dimensions are computed forward from the inputs, through shape arithmetic too, so `N` stays `N` and 2·N
    becomes "2*N". What is computed overrules what the file declares, because stale declarations are common. A
    dimension that depends on data gets a name of its own. Weights are not read, and the interface is not
    touched; neither are function bodies, which have no types of their own.
    """

    name = "infer-shapes"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        _Inference(model, rewriter).infer(model.graph)
        return rewriter.changes


class _Inference:
    """One walk over the model."""

    def __init__(self, model: Model, rewriter: Rewriter) -> None:
        self.model, self.rewriter = model, rewriter
        self.values = ShapeValues(model)
        self.interface = set(model.graph.outputs)
        self._symbols: set[str] | None = None

    def infer(self, graph: ir.Graph) -> None:
        for node in graph:
            for inner in subgraphs(node):
                self.infer(inner)
            self.values.visit(node)
            typings = self._typings(node)
            if typings is None:
                continue
            for value, (dtype, dims) in zip(node.outputs, typings, strict=False):
                if value not in self.interface:
                    self._update(value, dtype, dims)

    def _typings(self, node: ir.Node) -> Sequence[Typing] | None:
        if node.op_type == "Constant" or has_references(node):
            return _constant_typing(node)
        if node.domain not in STANDARD_DOMAINS:
            alike = node.domain == "com.microsoft" and node.op_type in _LIKE_FIRST_INPUT
            return RULES["Identity"](Site(node, self.values)) if alike else None
        if is_op(node, "If"):
            return _branch_typings(node)
        if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
            return None
        opset = self.values.opset(node)
        rule = RULES.get(node.op_type)
        if rule is not None and opset >= _OLDEST_FOR_RULES:
            return rule(Site(node, self.values))
        return infer_from_schema(self.model, node, opset)

    def _update(self, value: ir.Value, dtype: ir.DataType | None, dims: Dims | None) -> None:
        new_type = dtype is not None and value.type is None
        old = dims_of(value)
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
        return tuple(d if d is not None else self._fresh(value, i) for i, d in enumerate(merged))

    def _fresh(self, value: ir.Value, axis: int) -> Dim:
        if self._symbols is None:
            self._symbols = set(_all_symbols(self.model))
        stem = re.sub(r"\W", "_", f"d_{value.name}_{axis}")
        symbol = fresh_name(stem, self._symbols.__contains__)
        self._symbols.add(symbol)
        return symbol


def _constant_typing(node: ir.Node) -> list[Typing] | None:
    if not is_op(node, "Constant") or has_references(node):
        return None
    tensor = ir.convenience.get_const_tensor(node.outputs[0], propagate_shape_type=False)
    return [(tensor.dtype, tuple(tensor.shape.numpy()))] if tensor is not None else None


def _branch_typings(node: ir.Node) -> list[Typing]:
    branches = [graph.outputs for graph in subgraphs(node)]
    return [_common(values) for values in zip(*branches, strict=False)]


def _common(values: Sequence[ir.Value]) -> Typing:
    """What the branches agree on."""
    dtypes = {v.dtype for v in values if not isinstance(v.type, (ir.SequenceType, ir.OptionalType))}
    shapes = [dims_of(v) for v in values]
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return dtype, None
    columns = zip(*[s for s in shapes if s is not None], strict=True)
    return dtype, tuple(c[0] if len(set(c)) == 1 else None for c in columns)


def _all_symbols(model: Model) -> set[str]:
    found: set[str] = set()
    for graph in model.graphs():
        outputs = (v for node in graph for v in node.outputs)
        for value in (*graph.inputs, *outputs):
            found.update(d for d in dims_of(value) or () if isinstance(d, str))
    return found
