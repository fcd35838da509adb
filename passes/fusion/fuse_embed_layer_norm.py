"""Three embeddings, their sum and its normalisation."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Fusion, Op, Term
from fuseline.engine.shapes.dims import dims_of, uncapped

__all__ = ["FuseEmbedLayerNorm"]


class FuseEmbedLayerNorm(Fusion):
    """LayerNormalization(word+segment+position embeddings) → com.microsoft.EmbedLayerNormalization"""

    name = "fuse-embed-layer-norm"
    phase = "inference"
    counterpart = "fuse-layer-norm"
    produces = ("EmbedLayerNormalization",)

    def match(
        self,
        op: Op,
        words: Term,
        ids: Term,
        types: Term,
        segments: Term,
        places: Term,
        positions: Term,
        scale: Term,
        bias: Term,
        epsilon: Term,
    ) -> Term:
        word, place = op.Gather(words, ids, axis=0), op.Gather(places, positions, axis=0)
        three = op.associative("Add", word, op.Gather(types, segments, axis=0), place)
        total = op.one_of(three, op.Add(word, place))
        return op.LayerNormalization(total, scale, bias, axis=-1, epsilon=epsilon)

    def check(
        self,
        words: ir.Value,
        places: ir.Value,
        ids: ir.Value,
        positions: ir.Value,
        scale: ir.Value,
        bias: ir.Value,
        types: ir.Value | None = None,
        segments: ir.Value | None = None,
    ) -> str | None:
        known = [v for v in (words, types, places, ids, segments, positions) if v is not None]
        if any(len(dims_of(v) or ()) != 2 for v in known):
            return f"tables and indices have the shapes {[dims_of(v) for v in known]}, not all of rank 2"
        if any(len(dims_of(v) or ()) != 1 for v in (scale, bias)):
            return f"scale and bias have the shapes {dims_of(scale)} and {dims_of(bias)}, not both of rank 1"
        shape = dims_of(ids) or ()
        if None in shape or (segments is not None and dims_of(segments) != shape):
            return f"words {shape} and segments {dims_of(segments)} are not known to have one shape"
        # A table of positions cut to the length: longer words would not fit it in either form.
        places_of = tuple(uncapped(d) or d for d in dims_of(positions) or ())
        if places_of not in (shape, (1, shape[1])):
            return f"the positions have the shape {dims_of(positions)}, the words {shape}"
        return None

    def replace(
        self,
        op: Builder,
        words: ir.Value,
        ids: ir.Value,
        places: ir.Value,
        positions: ir.Value,
        scale: ir.Value,
        bias: ir.Value,
        epsilon: float,
        types: ir.Value | None = None,
        segments: ir.Value | None = None,
    ) -> ir.Value:
        integers = [None if v is None else _int32(op, v) for v in (ids, segments, positions)]
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


def _int32(op: Builder, value: ir.Value) -> ir.Value:
    return op.Cast(value, to=ir.DataType.INT32)
