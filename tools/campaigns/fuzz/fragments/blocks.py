"""Embeddings, shape arithmetic, early selection and chains of no-ops."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from fuseline.tools.campaigns.fuzz.drawing import Drawing
from fuseline.tools.campaigns.fuzz.fragments.activations import linear
from fuseline.tools.campaigns.fuzz.fragments.attention import attend, merge_heads, project
from fuseline.tools.campaigns.fuzz.fragments.norms import norm_operator, rms_norm
from fuseline.tools.campaigns.fuzz.fragments.table import (
    add_either_way,
    fragment,
    hidden_states,
    vary,
    weight,
)
from fuseline.tools.campaigns.fuzz.operators.layout import reshape_to, shape_vector, squeeze, unsqueeze

__all__: list[str] = []


@fragment
def embeddings(g: Drawing) -> None:
    """Word, position and maybe type embeddings, summed, then a norm."""
    index = vary(g, TensorProto.INT64, TensorProto.INT32)
    ids = g.input(index, vary(g, (3, 5), (5,), (1, 5)), "index", 8)
    like = g.number(0.0, g.fresh(g.main_float, ()))
    words = g.one("Gather", weight(g, like, (8, 4)), ids, axis=0)
    if g.maybe(0.5):
        places = g.input(index, vary(g, ids.shape, (1, *ids.shape[1:]), (1,)), "index", 8)
    else:
        places = g.constant(np.arange(ids.shape[-1], dtype=np.int64)[None])
    total = add_either_way(g, words, g.one("Gather", weight(g, like, (8, 4)), places, axis=0))
    if g.maybe(0.5):
        kinds = g.input(index, ids.shape, "index", 2)
        total = add_either_way(g, total, g.one("Gather", weight(g, like, (2, 4)), kinds, axis=0))
    norm_operator(g, total)


@fragment
def whole_layer(g: Drawing) -> None:
    """A transformer layer: attention, residual, norm, feed-forward, residual, norm."""
    x = g.input(g.main_float, (3, 5, 8))
    norm = g.choose((norm_operator, rms_norm))
    merged = merge_heads(g, attend(g, *(project(g, x) for _ in range(3))), x)
    x = norm(g, add_either_way(g, x, linear(g, merged, 8)))
    from fuseline.tools.campaigns.fuzz.fragments.activations import activation

    inner = activation(g, linear(g, x, 4))
    norm(g, add_either_way(g, x, linear(g, inner, 8)))


@fragment
def first_token(g: Drawing) -> None:
    """A layer's first position alone, by Gather or Slice."""
    x = hidden_states(g, 8)
    if x.rank != 3:
        return
    y = norm_operator(g, add_either_way(g, x, linear(g, x, 8)))
    if g.maybe(0.5) or g.opset < 10:
        position = vary(g, 0, -1 if g.opset >= 11 else 0)
        taken = g.one("Gather", y, g.constant(np.array(position, np.int64)), axis=1)
    else:
        taken = squeeze(g, g.one("Slice", y, g.ints(0), g.ints(1), g.ints(1)), [1])
    g.one("Tanh", linear(g, taken, 8))


@fragment
def sizes_and_back(g: Drawing) -> None:
    """Shape → Gather → arithmetic → Concat → Reshape, as exporters write a flattening."""
    x = hidden_states(g)
    if x.rank != 3:
        return
    product = g.one("Mul", shape_vector(g, x, 0), shape_vector(g, x, 1))
    vector = g.one("Concat", product, g.ints(vary(g, -1, x.shape[2])), axis=0)
    flat = g.one("Reshape", x, vector, shapes=[(x.shape[0] * x.shape[1], x.shape[2])], types=[x.dtype])
    y = linear(g, flat, 4)
    back = g.one("Concat", shape_vector(g, x, 0), shape_vector(g, x, 1), g.ints(4), axis=0)
    g.one("Reshape", y, back, shapes=[(*x.shape[:2], 4)], types=[x.dtype])


@fragment
def noise(g: Drawing) -> None:
    """Pairs that undo each other, or nearly."""
    x = hidden_states(g)
    for _ in range(g.chance.randint(1, 4)):
        style = g.chance.randrange(6)
        if style == 0 and x.rank > 1:
            perm = list(range(x.rank))
            g.chance.shuffle(perm)
            back = vary(g, [perm.index(i) for i in range(x.rank)], perm)
            x = g.one("Transpose", g.one("Transpose", x, perm=perm), perm=back)
        elif style == 1 and x.rank < 4:
            axis = g.chance.randint(0, x.rank)
            x = squeeze(g, unsqueeze(g, x, [axis]), [axis])
        elif style == 2:
            middle = g.choose((TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT32))
            x = g.one("Cast", g.one("Cast", x, to=middle), to=x.dtype)
        elif style == 3:
            x = reshape_to(g, x, x.shape)
        elif style == 4:
            x = g.one(g.choose(("Mul", "Div")), x, g.number(1.0, x, vary(g, (), (1,), (1, 1, 1, 1))))
        else:
            x = g.one(g.choose(("Add", "Sub")), x, g.number(0.0, x, vary(g, (), x.shape[-1:], (1, 1, 1, 1))))


@fragment
def minus_own_mean(g: Drawing) -> None:
    """x minus its mean along the batch, which is 1 for no batch."""
    from fuseline.tools.campaigns.fuzz.operators.reductions import reduce

    x = g.input(g.main_float, (3, 4))
    mean = reduce(g, "ReduceMean", x, [0])
    y = g.one("Sub", x, vary(g, mean, g.input(x.dtype, (5, 4) if g.maybe(0.1) else (1, 4))))
    reshape_to(g, y, vary(g, (3, 2, 2), (3, 4), (12,)))
