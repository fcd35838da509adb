"""The pass `inline-functions`."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.naming import fresh_name
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.pruning import remove_uncalled
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["InlineFunctions"]


class InlineFunctions(Pass):
    """call of a model-local function → its body

    Fusions and gradients look at operators, not at calls. Names of the inlined nodes are made unique. A
    function of another opset than the model's is refused: its nodes would mean something else there.
    Functions that nothing calls go too.
    """

    name = "inline-functions"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        remove_uncalled(model, rewriter)
        calls = [n for n in model.nodes() if n.op_identifier() in model.ir.functions]
        imports = dict(model.graph.opset_imports)
        for identifier in dict.fromkeys(n.op_identifier() for n in calls):
            _check_opsets(model.ir.functions[identifier], imports)
        if not calls or not rewriter.permit("model", f"inline {len(calls)} calls"):
            return rewriter.changes
        rewriter.count("calls", len(calls))
        _name_all_results(model)
        model.ir = InlinePass()(model.ir).model
        model.name_everything()
        return rewriter.changes


def _check_opsets(function: ir.Function, imports: dict[str, int]) -> None:
    """Nothing but one opset of each domain can be imported; those of the function are added."""
    for domain, version in function.opset_imports.items():
        own = imports.setdefault(domain, version)
        if own != version:
            raise ModelError(
                f"function '{function.domain}::{function.name}' is written for opset {version} of "
                f"{domain or 'ai.onnx'}, the model for {own}: it cannot be inlined",
                hint="export the model and its functions for one opset",
            )


def _name_all_results(model: Model) -> None:
    """Let each call take every result of its function: the nodes that make one need somewhere to put it."""
    graphs = list(model.graphs())
    taken = {v.name for graph in graphs for node in graph for v in node.outputs}
    taken |= {v.name for graph in graphs for v in (*graph.inputs, *graph.initializers.values())}
    for call in (n for graph in graphs for n in graph if n.op_identifier() in model.ir.functions):
        results = model.ir.functions[call.op_identifier()].outputs
        call.resize_outputs(max(len(results), len(call.outputs)))
        for value, result in zip(call.outputs, results, strict=False):
            if not value.name:
                value.name = fresh_name(result.name or call.op_type, taken.__contains__)
                taken.add(value.name)
