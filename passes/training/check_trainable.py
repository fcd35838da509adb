"""The pass `check-trainable`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.analysis.learns import Learns
from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.operators.gradient import Gradient, NoGradient, Prepared
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY, Rewriter
from fuseline.engine.training.differentiable import has_gradient, qualified

__all__ = ["CheckTrainable"]


class CheckTrainable(Pass):
    """graph with a loss → the same graph, or an error listing every node on the way that has no gradient"""

    name = "check-trainable"
    phase = "pre-gradient"
    ensures = (Property.TRAINABLE,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        path = rewriter.analysis(Learns).nodes
        rewriter.count("nodes on the path", len(path))
        missing = [node for node in path if not has_gradient(node)]
        if missing:
            raise PassError(_report(missing), hint=_hint(missing))
        return 0


def _report(missing: list[ir.Node]) -> str:
    word = "node stands" if len(missing) == 1 else "nodes stand"
    lines = [f"{len(missing)} {word} between parameters and the loss without a gradient:"]
    for node in missing:
        place = " ".join(
            text
            for key, text in (
                (MODULE_KEY, f"in {node.metadata_props.get(MODULE_KEY)}"),
                (SOURCE_KEY, f"at {node.metadata_props.get(SOURCE_KEY)}"),
            )
            if key in node.metadata_props
        )
        lines.append(f"  {qualified(node)} {node.name!r}{' ' + place if place else ''}: {_advice(node)}")
    return "\n".join(lines)


def _advice(node: ir.Node) -> str:
    gradient = _gradient(node)
    if isinstance(gradient, Prepared):
        return f"run {gradient.by!r}" if gradient.by else "'prepare-for-gradient' rewrites it"
    return gradient.advice if isinstance(gradient, NoGradient) else NoGradient().advice


def _gradient(node: ir.Node) -> Gradient:
    operator = record(node)
    return operator.gradient if operator is not None else NoGradient()


def _hint(missing: list[ir.Node]) -> str:
    if all(isinstance(_gradient(node), Prepared) for node in missing):
        return "put the pipeline 'prepare-for-gradient' in front of 'check-trainable'"
    return "a gradient can be given in the operator's record (fuseline.engine.operators)"
