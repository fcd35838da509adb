"""What is counted in an optimised model, and whether it still computes what the plain one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

__all__ = ["COLUMNS", "Outputs", "count", "difference", "outputs"]

Outputs = dict[str, npt.NDArray[Any]]

# A normalisation counts as one wherever it went; "skip" is a residual sum that went with it, and "embed" the
# look-ups of embeddings that did. A product inside an attention node is no fusion of its own.
_OPERATORS: dict[str, tuple[str, ...]] = {
    "attention": ("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"),
    "layer norm": ("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"),
    "rms norm": ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization"),
    "skip": ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    "embed": ("EmbedLayerNormalization",),
    "gelu": ("Gelu", "FastGelu", "BiasGelu", "QuickGelu"),
    "bias gelu": ("BiasGelu",),
    "rotary": ("RotaryEmbedding",),
    "convolution": ("FusedConv",),
}
COLUMNS = tuple(_OPERATORS)


def count(model: onnx.ModelProto) -> dict[str, int]:
    """Fused nodes per column, and all nodes but constants; bodies included."""
    nodes = list(_nodes(model.graph))
    kinds = Counter(node.op_type for node in nodes)
    found = {column: sum(kinds[op] for op in operators) for column, operators in _OPERATORS.items()}
    found["bias gelu"] += sum(
        n.op_type == "FastGelu" and len(n.input) > 1 and bool(n.input[1]) for n in nodes
    )
    return {**found, "nodes": sum(kinds.values()) - kinds["Constant"]}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def outputs(model: onnx.ModelProto, inputs: Mapping[str, npt.NDArray[Any]]) -> Outputs:
    """What the model computes on ONNX Runtime with its own optimisations off."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def difference(expected: Outputs, actual: Outputs) -> float:
    """The largest absolute difference; infinite where outputs are missing or of another shape."""
    worst = 0.0
    for name, value in expected.items():
        other = actual.get(name)
        if other is None or other.shape != value.shape:
            return float("inf")
        if value.size:
            apart = np.abs(value.astype(np.float64) - other.astype(np.float64))
            worst = max(worst, float(apart.max()) if np.isfinite(apart).all() else float("inf"))
    return worst
