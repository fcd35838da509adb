"""Three embeddings, their sum and its normalisation."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx_ir as ir

from fuseline.engine.pass_ import Phase
from fuseline.engine.patterns import Builder, Fusion, Op
from fuseline.passes.fusion.fragments.values import dims

__all__ = ["FuseEmbedLayerNorm"]


class FuseEmbedLayerNorm(Fusion):
    """LayerNormalization(word+type+position embeddings) → com.microsoft.EmbedLayerNormalization"""

    name: ClassVar[str] = "fuse-embed-layer-norm"
    phase: ClassVar[Phase] = "inference"
    produces: ClassVar[tuple[str, ...]] = ("EmbedLayerNormalization",)

    def match(
        self,
        op: Op,
        words: Any,
        ids: Any,
        types: Any,
        segments: Any,
        places: Any,
        positions: Any,
        scale: Any,
        bias: Any,
        epsilon: Any,
    ) -> Any:
        three = op.associative(
            "Add",
            op.Gather(words, ids, axis=0),
            op.Gather(types, segments, axis=0),
            op.Gather(places, positions, axis=0),
        )
        return op.LayerNormalization(three, scale, bias, axis=-1, epsilon=epsilon)

    def check(
        self, words: Any, types: Any, places: Any, ids: Any, segments: Any, positions: Any
    ) -> str | None:
        ranks = [len(dims(v) or ()) for v in (words, types, places, ids, segments, positions)]
        if ranks != [2] * 6:
            return f"tables and indices have the ranks {ranks}, not 2"
        if dims(ids) != dims(segments) or None in (dims(ids) or (None,)):
            return f"words {dims(ids)} and segments {dims(segments)} are not known to have one shape"
        if dims(positions) not in (dims(ids), (1, (dims(ids) or ())[1])):
            return f"the positions have the shape {dims(positions)}, the words {dims(ids)}"
        return None

    def replace(
        self,
        op: Builder,
        words: Any,
        ids: Any,
        types: Any,
        segments: Any,
        places: Any,
        positions: Any,
        scale: Any,
        bias: Any,
        epsilon: float,
    ) -> Any:
        integers = [_int32(op, v) for v in (ids, segments, positions)]
        made, _ = op.EmbedLayerNormalization(
            integers[0],
            integers[1],
            words,
            places,
            types,
            scale,
            bias,
            None,
            integers[2],
            epsilon=epsilon,
            _domain="com.microsoft",
            _outputs=2,
        )
        return made


def _int32(op: Builder, value: ir.Value) -> Any:
    made = op.Cast(value, to=ir.DataType.INT32)
    made.type, made.shape = ir.TensorType(ir.DataType.INT32), value.shape
    return made
