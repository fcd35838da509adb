"""Attention with additive mask and bias, causal limit, dropout and grouped heads; packed operands too."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.dropout import dropout_key, dropout_mask
from fuseline.kernels.operator import Array, GradientNode, Operator, Sizes, optional, port
from fuseline.kernels.workspace import lines, padded

__all__ = [
    "ATTENTION_ATTRIBUTES",
    "ATTENTION_OPERATORS",
    "LARGEST_BLOCK",
    "attend",
    "attend_grad",
    "largest_scores",
    "packed_axis",
]


def _scores(q: Array, k: Array, mask: Array, bias: Array, scale: float, causal: bool, lowest: float) -> Array:
    """[batch, heads, queries, keys], the keys' heads repeated for the group that shares them."""
    k = np.repeat(k, q.shape[2] // k.shape[2], axis=2)
    scores: Array = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    for term in (mask, bias):
        if term.size:
            scores = scores + term
    if causal:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
    replaced = np.logical_and(_replaced(scores, mask, lowest), ~np.isneginf(scores))
    return np.where(replaced, np.float32(lowest), scores)


def _replaced(scores: Array, mask: Array, lowest: float) -> Array:
    """The rows [batch, heads, queries, 1] of which the mask replaces every score that there is."""
    if lowest == 0 or not mask.size:
        return np.zeros((*scores.shape[:-1], 1), bool)
    unseen = np.isneginf(scores)
    low = np.logical_or(np.broadcast_to(mask < 0.5 * lowest, scores.shape), unseen)
    rows: Array = np.logical_and(low.all(-1, keepdims=True), ~unseen.all(-1, keepdims=True))
    return rows


def _probabilities(scores: Array, statistics: Array) -> Array:
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - statistics[..., :1]) * statistics[..., 1:]
    return np.where(np.isfinite(scores), exponentials, 0)


def _statistics(scores: Array) -> Array:
    top = scores.max(-1)
    seen = np.isfinite(top)
    total = np.exp(scores - np.where(seen, top, 0)[..., None]).sum(-1)
    inverse = np.where(seen, 1 / np.where(seen, total, 1), 0)
    return np.stack([np.where(seen, top, 0), inverse], -1).astype(np.float32)


def _dropout(shape: tuple[int, ...], key: int, ratio: float) -> Array:
    return dropout_mask(key, int(np.prod(shape[:-1])), shape[-1], ratio).reshape(shape)


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    kept: Array,
    scale: float,
    causal: bool,
    lowest: float,
) -> tuple[Array, Array]:
    """The result and its statistics; `kept` is what dropout multiplies each score with."""
    scores = _scores(q, k, mask, bias, scale, causal, lowest)
    statistics = _statistics(scores)
    p = _probabilities(scores, statistics) * kept
    y = np.einsum("bhqk,bkhd->bqhd", p, np.repeat(v, q.shape[2] // v.shape[2], axis=2))
    return y.astype(np.float32), statistics


def attend_grad(
    dy: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    kept: Array,
    statistics: Array,
    state: Array,
) -> tuple[Array, ...]:
    group = q.shape[2] // k.shape[2]
    scores = _scores(q, k, mask, bias, float(state[0]), bool(state[1]), float(state[3]))
    p = _probabilities(scores, statistics)
    dp = np.einsum("bqhd,bkhd->bhqk", dy, np.repeat(v, group, axis=2)) * kept
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    ds = np.where(_replaced(scores, mask, float(state[3])), 0, ds)
    dq = np.einsum("bhqk,bkhd->bqhd", ds, np.repeat(k, group, axis=2)) * state[0]
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * state[0]
    dv = np.einsum("bhqk,bqhd->bkhd", p * kept, dy)
    dk, dv = (x.reshape(*k.shape[:3], group, k.shape[3]) for x in (dk, dv))
    dbias = _reduced_to(ds, bias) if bias.size else bias
    return tuple(x.astype(np.float32) for x in (dq, dk.sum(3), dv.sum(3), dbias))


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    seed: Array,
    scale: float = 0.0,
    causal: int = 0,
    stream: int = 0,
    lowest: float = 0.0,
) -> tuple[Array, ...]:
    scale = scale or q.shape[-1] ** -0.5
    key = dropout_key(int(seed[0]), stream)
    kept = _dropout(_score_shape(q, k), key, float(ratio[0]))
    y, statistics = attend(q, k, v, mask, bias, kept, scale, bool(causal), lowest)
    state = np.array([scale, bool(causal), 0, lowest], np.float32)
    return y, statistics, state, np.array([key], np.int64)


def _score_shape(q: Array, k: Array) -> tuple[int, ...]:
    return q.shape[0], q.shape[2], q.shape[1], k.shape[1]


def attention_grad(
    dy: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    y: Array,
    statistics: Array,
    state: Array,
    key: Array,
) -> tuple[Array, ...]:
    kept = _dropout(_score_shape(q, k), int(key[0]), float(ratio[0]))
    return attend_grad(dy, q, k, v, mask, bias, kept, statistics, state)


def _reduced_to(ds: Array, bias: Array) -> Array:
    padded = (1,) * (ds.ndim - bias.ndim) + bias.shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1)
    reduced: Array = ds.sum(axes, keepdims=True).reshape(bias.shape)
    return reduced


def packed_axis(interleaved: bool) -> int:
    """The axis of [batch, tokens, …] that q, k and v share."""
    return 3 if interleaved else 2


def attention_packed(
    qkv: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    seed: Array,
    scale: float = 0.0,
    causal: int = 0,
    stream: int = 0,
    lowest: float = 0.0,
    interleaved: int = 0,
) -> tuple[Array, ...]:
    q, k, v = (np.take(qkv, i, packed_axis(bool(interleaved))) for i in range(3))
    y, statistics, state, key = attention(q, k, v, mask, bias, ratio, seed, scale, causal, stream, lowest)
    state[2] = bool(interleaved)
    return y, statistics, state, key


def attention_packed_grad(
    dy: Array,
    qkv: Array,
    mask: Array,
    bias: Array,
    ratio: Array,
    y: Array,
    statistics: Array,
    state: Array,
    key: Array,
) -> tuple[Array, ...]:
    axis = packed_axis(bool(state[2]))
    q, k, v = (np.take(qkv, i, axis) for i in range(3))
    *operands, dbias = attention_grad(dy, q, k, v, mask, bias, ratio, y, statistics, state, key)
    return np.stack(operands, axis), dbias


LARGEST_BLOCK = 192
_SMALLEST_BLOCK, _SCORE_FLOATS = 24, 30 << 10


def largest_scores(keys: int) -> int:
    """Of one block, at most, without what pads its rows; up to that many keys."""
    return max(_SCORE_FLOATS, _SMALLEST_BLOCK * keys)


def _block(queries: int, keys: int) -> int:
    """Queries at a time: blocks of nearly equal size, whose scores stay in a core's cache."""
    largest = min(max(_SCORE_FLOATS // max(keys, 1), _SMALLEST_BLOCK), LARGEST_BLOCK)
    return max(-(-queries // max(-(-queries // largest), 1)), 1)


def _unwanted_statistics(sizes: Sizes) -> int:
    """Those that nobody wants."""
    return lines(sizes["B"] * sizes["H"] * sizes["S"] * 2)


def _forward_tasks(sizes: Sizes, threads: int) -> int:
    """Per thread a head's keys and values and a block of its scores."""
    batch, queries, heads, width = (sizes[letter] for letter in "BSHD")
    keys = sizes.get("T", queries)
    scores = lines(_block(queries, keys) * (padded(keys) + padded(1)))
    task = lines(padded(keys) * width) + lines(padded(width) * keys) + scores
    return min(threads, max(batch * heads, 1)) * task


def _unwanted_gradients(sizes: Sizes) -> int:
    """Those that nobody wants."""
    batch, queries, heads, width = (sizes[letter] for letter in "BSHD")
    keys, groups = sizes.get("T", queries), sizes.get("G", heads)
    return lines(batch * width * (queries * heads + 2 * keys * groups))


def _backward_tasks(sizes: Sizes, threads: int) -> int:
    """Per thread a group's operands and a block of scores and slopes."""
    batch, queries, heads, width = (sizes[letter] for letter in "BSHD")
    keys, groups = sizes.get("T", queries), sizes.get("G", heads)
    block = _block(queries, keys)
    operands = 2 * lines(padded(keys) * width) + lines(padded(width) * keys)
    task = operands + 2 * lines(padded(width) * block) + 2 * lines(block * (padded(keys) + padded(1)))
    return min(threads, max(batch * groups, 1)) * task


_QUERIES, _KEYS, _PACKED = "B,S,H,D", "B,T,G,D", "B,S,3,H,D/B,S,H,3,D"
_OPERANDS = (port("q", _QUERIES), port("k", _KEYS), port("v", _KEYS))
_RATIO, _SEED = port("ratio", "1"), port("seed", "1", "int64")
_TAIL = (port("mask", "^B,H,S,T?"), port("bias", "^B,H,S,T?"), _RATIO)
_OWN_TAIL = (port("mask", "^B,H,S,S?"), port("bias", "^B,H,S,S?"), _RATIO)
_SAVED = (
    port("y", _QUERIES),
    port("statistics", "B,H,S,2"),
    port("state", "4"),
    port("key", "1", "int64"),
)
_OUTPUTS = (
    port("y", _QUERIES),
    optional("statistics", "B,H,S,2"),
    optional("state", "4"),
    optional("key", "1", "int64"),
)
# Nothing computes the mask's gradient; its port keeps the bias's at the position of the bias.
_DMASK_DBIAS = (optional("dmask"), optional("dbias"))
ATTENTION_ATTRIBUTES: dict[str, int | float] = {"scale": 0.0, "causal": 0, "stream": 0, "lowest": 0.0}

ATTENTION_OPERATORS = (
    Operator(
        "FusedAttention",
        "dropout(softmax(scale·q·kᵀ + mask + bias))·v over [batch, tokens, heads, width]; "
        "only a block of the scores exists at a time; a row whose every mask is near `lowest` (not 0) has "
        "equal weights and gives q and k no gradient, as where a number replaces all its scores",
        (*_OPERANDS, *_TAIL, _SEED),
        _OUTPUTS,
        attention,
        ATTENTION_ATTRIBUTES,
        (
            GradientNode(
                "FusedAttentionGrad",
                ("GO(0)", "I(0)", "I(1)", "I(2)", "I(3)", "I(4)", "I(5)", "O(0)", "O(1)", "O(2)", "O(3)"),
                ("GI(0)", "GI(1)", "GI(2)", "GI(3)", "GI(4)"),
            ),
        ),
        _unwanted_statistics,
        _forward_tasks,
        product=True,
    ),
    Operator(
        "FusedAttentionGrad",
        "gradient of FusedAttention; the scores are made again block by block",
        (port("dy", _QUERIES), *_OPERANDS, *_TAIL, *_SAVED),
        (optional("dq", _QUERIES), optional("dk", _KEYS), optional("dv", _KEYS), *_DMASK_DBIAS),
        attention_grad,
        workspace=_unwanted_gradients,
        task_workspace=_backward_tasks,
        product=True,
    ),
    Operator(
        "FusedAttentionPacked",
        "FusedAttention of one qkv [batch, tokens, 3, heads, width], or interleaved: "
        "[batch, tokens, heads, 3, width]",
        (port("qkv", _PACKED), *_OWN_TAIL, _SEED),
        _OUTPUTS,
        attention_packed,
        {**ATTENTION_ATTRIBUTES, "interleaved": 0},
        (
            GradientNode(
                "FusedAttentionPackedGrad",
                ("GO(0)", "I(0)", "I(1)", "I(2)", "I(3)", "O(0)", "O(1)", "O(2)", "O(3)"),
                ("GI(0)", "GI(1)", "GI(2)"),
            ),
        ),
        _unwanted_statistics,
        _forward_tasks,
        product=True,
    ),
    Operator(
        "FusedAttentionPackedGrad",
        "gradient of FusedAttentionPacked, packed alike",
        (port("dy", _QUERIES), port("qkv", _PACKED), *_OWN_TAIL, *_SAVED),
        (optional("dqkv", _PACKED), *_DMASK_DBIAS),
        attention_packed_grad,
        workspace=_unwanted_gradients,
        task_workspace=_backward_tasks,
        product=True,
    ),
)
