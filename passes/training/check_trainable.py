"""The pass `check-trainable`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY, Rewriter
from fuseline.engine.training.differentiable import has_gradient, nodes_on_gradient_path, qualified

__all__ = ["CheckTrainable"]

_ADVICE = {
    "BatchNormalization": "run 'resolve-batch-norm'",
    "CastLike": "run 'resolve-cast-like'",
    "ConvTranspose": "upsample with Resize(nearest) and a convolution, or freeze what lies before it",
    "Einsum": "write it as a product of two operands",
    "GRU": "unroll it or use attention; ONNX Runtime has no gradient for recurrent operators on the CPU",
    "GridSample": "there is no gradient for it; freeze what lies before it",
    "LSTM": "unroll it or use attention; ONNX Runtime has no gradient for recurrent operators on the CPU",
    "Loop": "export with a fixed number of steps, so that the loop is unrolled",
    "Mod": "write it as x − y·floor(x/y)",
    "ReduceProd": "write it as exp(sum(log(x)))",
    "Resize": "ONNX Runtime has no kernel for its gradient on the CPU; freeze what lies before it",
    "RNN": "unroll it or use attention; ONNX Runtime has no gradient for recurrent operators on the CPU",
    "Scan": "export with a fixed number of steps, so that the loop is unrolled",
    "SplitToSequence": "run 'resolve-split-sequence'",
}
_FIXED_BY_PREPARING = frozenset(
    [
        "Celu",
        "DepthToSpace",
        "Elu",
        "GroupNormalization",
        "HardSigmoid",
        "HardSwish",
        "InstanceNormalization",
        "LpNormalization",
        "Mean",
        "MeanVarianceNormalization",
        "Mish",
        "NegativeLogLikelihoodLoss",
        "PRelu",
        "ReduceL1",
        "ReduceLogSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceSumSquare",
        "Selu",
        "Shrink",
        "SpaceToDepth",
        "Sum",
        "ThresholdedRelu",
    ]
)


class CheckTrainable(Pass):
    """graph with a loss → the same graph, or an error listing every node on the way that has no gradient"""

    name = "check-trainable"
    phase = "pre-gradient"
    ensures = (Property.TRAINABLE,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        path = nodes_on_gradient_path(model)
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
    if node.op_type in _FIXED_BY_PREPARING:
        return "'prepare-for-gradient' rewrites it"
    return _ADVICE.get(node.op_type, "freeze the parameters before it, or write it with other operators")


def _hint(missing: list[ir.Node]) -> str:
    if all(n.op_type in _FIXED_BY_PREPARING or "run '" in _advice(n) for n in missing):
        return "put the pipeline 'prepare-for-gradient' in front of 'check-trainable'"
    return "a gradient can be defined with onnxruntime's register_gradient_definition and gradient_registrars"
