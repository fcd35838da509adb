"""12. Into a function: the model itself says what the new operator means, so it runs everywhere."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term

DOMAIN = "gallery.functions"


class FuseIntoFunction(Fusion):
    """x·Sigmoid(x) → gallery.functions.Swish(x), a function of the model"""

    name = "fuse-into-function"
    produces = ("Swish",)

    def match(self, op: Op, x: Term) -> Term:
        return op.Mul(x, op.Sigmoid(x))

    def check(self, context: Context) -> str | None:
        bodies = [function.graph for function in context.model.ir.functions.values()]
        inside = context.match.nodes[0].graph in bodies
        return "it stands in a function already" if inside else None

    def replace(self, op: Builder, x: ir.Value, context: Context) -> ir.Value:
        _declare_swish(context.model)
        return op.Swish(x, _domain=DOMAIN)


def _declare_swish(model: Model) -> None:
    """Add the function once; `inline-functions` takes it apart again."""
    if (DOMAIN, "Swish", "") in model.ir.functions:
        return
    x = ir.Value(name="x")
    gate = ir.node("Sigmoid", [x])
    product = ir.node("Mul", [x, gate.outputs[0]])
    gate.outputs[0].name, product.outputs[0].name = "gate", "y"
    opsets = {"": model.opset()}
    body = ir.Graph([x], product.outputs, nodes=[gate, product], opset_imports=opsets, name="Swish")
    function = ir.Function(DOMAIN, "Swish", graph=body, attributes=[])
    model.ir.functions[function.identifier()] = function
    model.graph.opset_imports.setdefault(DOMAIN, 1)
