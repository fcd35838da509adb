"""Attention: heads, scale, masks of several styles, rotary embedding, repeated and past keys and values."""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import Drawing, Unfit, Value, numpy_type
from fuseline.tools.campaigns.fuzz.fragments.activations import linear
from fuseline.tools.campaigns.fuzz.fragments.table import add_either_way, fragment, number, vary
from fuseline.tools.campaigns.fuzz.operators.layout import shape_vector, unsqueeze

__all__ = ["attend", "project"]

_HEADS, _SIZE = 2, 4


def split_heads(g: Drawing, x: Value, heads: int = _HEADS) -> Value:
    """[batch, length, width] → [batch, heads, length, size]."""
    if x.rank != 3:
        raise Unfit("a deviation changed the rank")
    batch, length, width = x.shape
    target = (batch, length, heads, width // heads)
    style = g.chance.randrange(4)
    if style == 0:
        vector = g.one(
            "Concat",
            shape_vector(g, x, 0),
            shape_vector(g, x, 1),
            g.ints(heads),
            g.ints(width // heads),
            axis=0,
        )
    elif style == 1:
        vector = g.one("Concat", shape_vector(g, x, 0), g.ints(-1), g.ints(heads, width // heads), axis=0)
    else:
        vector = g.ints(0, vary(g, 0, -1), heads, width // heads)
    four = g.one("Reshape", x, vector, shapes=[target], types=[x.dtype])
    return g.one("Transpose", four, perm=vary(g, [0, 2, 1, 3], [0, 2, 3, 1], [2, 0, 1, 3]))


def project(g: Drawing, x: Value) -> Value:
    return split_heads(g, linear(g, x, _HEADS * _SIZE))


def _mask(g: Drawing, scores: Value, batch: int, keys: int) -> Value:
    """The mask added to the scores, or the scores where it keeps them."""
    style = g.chance.randrange(7)
    lowest = vary(g, float(np.finfo(numpy_type(scores.dtype)).min), -10000.0, -1e4, float("-inf"), -1.0)
    if style == 0:
        return add_either_way(g, scores, g.input(scores.dtype, vary(g, (batch, 1, 1, keys), (1, 1, 1, keys))))
    if style == 1:
        return add_either_way(g, scores, g.input(scores.dtype, vary(g, scores.shape, scores.shape[1:])))
    if style in (2, 3):
        kind = g.choose(("mask", "mask", "mask", "any", "positive"))
        whole = g.input(g.choose((TensorProto.INT64, TensorProto.INT32)), (batch, keys), kind)
        wide = unsqueeze(g, whole, [1, 2])
        kept = g.one("Cast", wide, to=scores.dtype)
        one = number(g, scores, 1.0)
        inverse = g.one("Sub", one, kept)
        return add_either_way(g, scores, g.one("Mul", inverse, g.number(lowest, scores)))
    if style == 4:
        wide = unsqueeze(g, g.input(TensorProto.INT64, (batch, keys), "mask"), [1, 2])
        kept = g.one("Cast", wide, to=TensorProto.BOOL)
        if g.opset < 9:
            return scores
        chosen = (scores, g.number(lowest, scores)) if g.maybe(0.7) else (g.number(lowest, scores), scores)
        if chosen[0] is not scores:
            kept = g.one("Not", kept)
        return g.one("Where", kept, *chosen)
    if style == 5 and scores.shape[-2] == keys and g.opset >= 14:
        full = g.one("Trilu", g.number(1.0, scores, (1, 1, 8, 8)), upper=0)
        cut = g.one("Slice", full, g.ints(0, 0), g.ints(keys, keys), g.ints(2, 3))
        return g.one("Where", g.one("Cast", cut, to=TensorProto.BOOL), scores, g.number(lowest, scores))
    return scores


def attend(g: Drawing, q: Value, k: Value, v: Value) -> Value:
    """Softmax(q·kᵀ·scale + mask)·v of [batch, heads, length, size] each."""
    if {q.rank, k.rank, v.rank} != {4}:
        raise Unfit("a deviation changed the rank")
    scale = 1 / sqrt(max(q.shape[-1], 1))
    style = g.chance.randrange(4)
    if style == 0:
        q = g.one("Mul", q, number(g, q, scale))
    if style == 1:
        q, k = g.one("Mul", q, number(g, q, sqrt(scale))), g.one("Mul", k, number(g, q, sqrt(scale)))
    if k.shape[-1] == q.shape[-1]:
        k = g.one("Transpose", k, perm=[0, 1, 3, 2])
    scores = g.one("MatMul", q, k)
    if style == 2:
        scores = g.one("Div", scores, number(g, q, 1 / scale))
    if style == 3:
        scores = g.one("Mul", scores, number(g, q, scale))
    scores = _mask(g, scores, scores.shape[0], scores.shape[-1])
    chances = g.one("Softmax", scores, axis=vary(g, 3 if g.opset < 13 else -1, 2))
    if g.maybe(0.1):
        g.one("Identity", chances)
    return g.one("MatMul", chances, v)


def merge_heads(g: Drawing, x: Value, like: Value) -> Value:
    if x.rank != 4:
        raise Unfit("a deviation changed the rank")
    batch, heads, length, size = x.shape
    turned = g.one("Transpose", x, perm=vary(g, [0, 2, 1, 3], [0, 1, 2, 3]))
    if g.maybe(0.5):
        vector = g.one(
            "Concat", shape_vector(g, like, 0), shape_vector(g, like, 1), g.ints(heads * size), axis=0
        )
    else:
        vector = g.ints(0, vary(g, 0, -1), heads * size)
    return g.one("Reshape", turned, vector, shapes=[(batch, length, heads * size)], types=[x.dtype])


@fragment
def self_attention(g: Drawing) -> None:
    x = g.input(g.main_float, vary(g, (3, 5, 8), (1, 5, 8), (3, 1, 8), (2, 4, 8)))
    q, k, v = (project(g, x) for _ in range(3))
    if g.maybe(0.25):
        q, k = rotate(g, q), rotate(g, k)
    merged = merge_heads(g, attend(g, q, k, v), x)
    if g.maybe(0.5):
        add_either_way(g, x, linear(g, merged, 8))


@fragment
def packed_attention(g: Drawing) -> None:
    x = g.input(g.main_float, (3, 5, 8))
    whole = linear(g, x, 3 * _HEADS * _SIZE)
    sizes = vary(g, [8, 8, 8], [8, 4, 12])
    if g.opset < 13:
        q, k, v = g.add("Split", [whole], 3, axis=2, split=sizes)
    else:
        q, k, v = g.add("Split", [whole, g.ints(*sizes)], 3, axis=2)
    merge_heads(g, attend(g, *(split_heads(g, part) for part in (q, k, v))), x)


@fragment
def cross_attention(g: Drawing) -> None:
    x, memory = g.input(g.main_float, (3, 5, 8)), g.input(g.main_float, (3, 7, 8))
    merge_heads(g, attend(g, project(g, x), project(g, memory), project(g, memory)), x)


@fragment
def attention_with_past(g: Drawing) -> None:
    x = g.input(g.main_float, (3, 5, 8))
    q, k, v = (project(g, x) for _ in range(3))
    if q.shape[1] != _HEADS or k.shape != v.shape:
        return
    past = [g.input(g.main_float, (3, _HEADS, 7, _SIZE)) for _ in range(2)]
    k, v = (g.one("Concat", p, new, axis=vary(g, 2, -2)) for p, new in zip(past, (k, v), strict=True))
    merge_heads(g, attend(g, q, k, v), x)


@fragment
def grouped_attention(g: Drawing) -> None:
    """One pair of keys and values for all heads, repeated by Expand."""
    x = g.input(g.main_float, (3, 5, 8))
    q = project(g, x)
    k, v = (split_heads(g, linear(g, x, _SIZE), 1) for _ in range(2))
    if k.shape[1] != 1 or v.shape[1] != 1:
        return
    wide = [g.one("Expand", p, g.ints(1, vary(g, _HEADS, 1), 1, 1)) for p in (k, v)]
    merge_heads(g, attend(g, q, *wide), x)


def rotate(g: Drawing, x: Value) -> Value:
    """x·cos + rotate_half(x)·sin on the last axis."""
    if x.shape[-1] != _SIZE:
        return x
    half = _SIZE // 2
    if g.opset < 10 or x.rank != 4:
        return x
    first = g.one("Slice", x, g.ints(0), g.ints(half), g.ints(3), g.ints(1))
    second = g.one("Slice", x, g.ints(half), g.ints(vary(g, 1 << 62, _SIZE)), g.ints(3), g.ints(1))
    turned = g.one("Concat", *vary(g, (g.one("Neg", second), first), (second, g.one("Neg", first))), axis=-1)
    angles = g.input(x.dtype, vary(g, (1, 1, x.shape[2], _SIZE), (x.shape[0], 1, x.shape[2], _SIZE)))
    cos, sin = g.one("Cos", angles), g.one("Sin", vary(g, angles, x))
    return add_either_way(g, g.one("Mul", x, cos), g.one("Mul", turned, sin))


@fragment
def lone_rotary(g: Drawing) -> None:
    rotate(g, g.input(g.main_float, (3, _HEADS, 5, _SIZE)))
