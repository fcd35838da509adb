"""Attention and weight gradients: against numpy, and against torch through the gradient builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuseline.kernels import OPERATORS
from fuseline.kernels.dropout import dropout_key, dropout_mask
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]
EMPTY = np.zeros(0, np.float32)
DMASK = ("dmask",)  # there is no such gradient


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def close(actual: Array, expected: Array, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def torch_attention(
    q: Any, k: Any, v: Any, mask: Array, bias: Any, scale: float, causal: bool, dropout: Array | None
) -> torch.Tensor:
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if mask.size:
        scores = scores + torch.from_numpy(mask)
    if bias is not None:
        scores = scores + bias
    if causal:
        queries, keys = scores.shape[-2:]
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~seen, -torch.inf)
    p = scores.softmax(-1)
    if dropout is not None:
        p = p * torch.from_numpy(dropout)
    return torch.einsum("bhqk,bkhd->bqhd", p, v)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one": {"queries": 1, "keys": 1, "width": 1, "batch": 1},
    "cross": {"queries": 5, "keys": 70, "width": 24},
    "causal": {"queries": 100, "keys": 100, "causal": 1, "width": 40},
    "causal_cross": {"queries": 7, "keys": 33, "causal": 1},
    "grouped": {"queries": 50, "keys": 50, "heads": 4, "groups": 2, "causal": 1},
    "mask": {"mask": (2, 1, 1, 37)},
    "mask_and_bias": {"mask": (2, 1, 1, 37), "bias": (1, 3, 21, 37)},
    "alibi": {"bias": (1, 3, 1, 37)},
    "bias_over_all": {"bias": (1, 1, 21, 37)},
    "bias_per_entry": {"bias": (2, 3, 21, 37)},
    "bias_per_batch": {"bias": (2, 1, 21, 37)},
    "bias_over_keys": {"bias": (1, 3, 21, 1)},
    "dropout": {"ratio": 0.3, "mask": (1, 1, 21, 37)},
    "wide": {"queries": 61, "keys": 530, "width": 80, "heads": 2, "groups": 2},
    "scaled": {"scale": 1.0},
}


class Case:
    def __init__(self, rng: np.random.Generator, **options: Any) -> None:
        batch, heads = options.get("batch", 2), options.get("heads", 3)
        groups, width = options.get("groups", heads), options.get("width", 16)
        queries, keys = options.get("queries", 21), options.get("keys", 37)
        self.q = normal(rng, batch, queries, heads, width)
        self.k, self.v = (normal(rng, batch, keys, groups, width) for _ in range(2))
        hidden = rng.random(options.get("mask", 0)) < 0.3
        self.mask = np.where(hidden, np.float32(-1e9), np.float32(0))
        self.bias = normal(rng, *options["bias"]) if options.get("bias") else EMPTY
        self.ratio = np.array([options.get("ratio", 0.0)], np.float32)
        self.seed = np.array([42])
        self.attributes = {
            "scale": options.get("scale", 0.0),
            "causal": options.get("causal", 0),
            "stream": 2,
        }
        self.dy = normal(rng, *self.q.shape)

    @property
    def forward(self) -> list[Array]:
        return [self.q, self.k, self.v, self.mask, self.bias, self.ratio, self.seed]

    @property
    def named(self) -> dict[str, Array]:
        return dict(zip(("q", "k", "v", "mask", "bias", "ratio", "seed"), self.forward, strict=True))

    def dropout(self) -> Array | None:
        if not self.ratio[0]:
            return None
        batch, queries, heads, _ = self.q.shape
        key = dropout_key(42, 2)
        rows = dropout_mask(key, batch * heads * queries, self.k.shape[1], float(self.ratio[0]))
        return rows.reshape(batch, heads, queries, -1)


@pytest.mark.parametrize("name", CASES)
def test_attention_matches_numpy(isa: str, rng: np.random.Generator, name: str) -> None:
    case = Case(rng, **CASES[name])
    operator, gradient = OPERATORS["FusedAttention"], OPERATORS["FusedAttentionGrad"]
    actual = evaluate(operator, case.forward, **case.attributes)
    for a, e in zip(actual, operator.reference(*case.forward, **case.attributes), strict=True):
        close(a, e)
    backward = [case.dy, *case.forward[:6], *actual]
    for a, e in zip(evaluate(gradient, backward, without=DMASK), gradient.reference(*backward), strict=True):
        close(a, e)


@pytest.mark.parametrize("ratio", [0.0, 0.3], ids=["kept", "dropped"])
@pytest.mark.parametrize("lowest", [-1e4, float(np.finfo(np.float32).min)], ids=["low", "lowest"])
def test_rows_whose_scores_are_all_replaced(
    isa: str, rng: np.random.Generator, gradients: Gradients, lowest: float, ratio: float
) -> None:
    """Queries and keys have no part in such a row; an added mask would let their gradient pass."""
    case = Case(rng, ratio=ratio)
    keep = rng.random((2, 1, 21, 37)) < 0.7
    keep[0, 0, :5] = False
    case.mask = np.where(keep, np.float32(0), np.float32(lowest))
    chosen = {**case.attributes, "lowest": lowest}
    outputs, found = gradients(OPERATORS["FusedAttention"], case.named, ["q", "k", "v"], case.dy, **chosen)
    q, k, v = (torch.from_numpy(case.named[n]).requires_grad_() for n in "qkv")
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * case.q.shape[-1] ** -0.5
    p = scores.masked_fill(torch.from_numpy(~keep), lowest).softmax(-1)
    kept = case.dropout()
    y = torch.einsum("bhqk,bkhd->bqhd", p if kept is None else p * torch.from_numpy(kept), v)
    y.backward(torch.from_numpy(case.dy))
    close(outputs[0], y.detach().numpy())
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        assert tensor.grad is not None
        close(found[name], tensor.grad.numpy())
    assert not found["q"][0, :5].any()
    operator, gradient = OPERATORS["FusedAttention"], OPERATORS["FusedAttentionGrad"]
    saved = operator.reference(*case.forward, **chosen)
    backward = [case.dy, *case.forward[:6], *saved]
    for a, e in zip(evaluate(gradient, backward, without=DMASK), gradient.reference(*backward), strict=True):
        close(a, e)


@pytest.mark.parametrize("name", CASES)
def test_attention_gradients_match_torch(
    isa: str, rng: np.random.Generator, gradients: Gradients, name: str
) -> None:
    case = Case(rng, **CASES[name])
    wrt = ["q", "k", "v", *(["bias"] if case.bias.size else [])]
    outputs, found = gradients(OPERATORS["FusedAttention"], case.named, wrt, case.dy, **case.attributes)
    tensors = {n: torch.from_numpy(case.named[n]).requires_grad_() for n in wrt}
    scale = case.attributes["scale"] or case.q.shape[-1] ** -0.5
    y = torch_attention(
        tensors["q"],
        tensors["k"],
        tensors["v"],
        case.mask,
        tensors.get("bias"),
        scale,
        bool(case.attributes["causal"]),
        case.dropout(),
    )
    (y * torch.from_numpy(case.dy)).sum().backward()
    close(outputs[0], y.detach().numpy())
    for n, tensor in tensors.items():
        assert tensor.grad is not None
        close(found[n], tensor.grad.numpy(), 2e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("causal", [0, 1])
def test_packed_equals_separate(
    isa: str, rng: np.random.Generator, gradients: Gradients, interleaved: int, causal: int
) -> None:
    qkv = normal(rng, 2, 51, *((4, 3, 12) if interleaved else (3, 4, 12)))
    rest = [np.where(rng.random((2, 1, 1, 51)) < 0.2, -1e9, 0).astype(np.float32), EMPTY]
    scalars = [np.array([0.1], np.float32), np.array([5])]
    dy = normal(rng, 2, 51, 4, 12)
    attributes = {"causal": causal, "interleaved": interleaved}
    operator, gradient = OPERATORS["FusedAttentionPacked"], OPERATORS["FusedAttentionPackedGrad"]
    actual = evaluate(operator, [qkv, *rest, *scalars], **attributes)
    for a, e in zip(actual, operator.reference(qkv, *rest, *scalars, **attributes), strict=True):
        close(a, e)
    backward = [dy, qkv, *rest, scalars[0], *actual]
    expected = gradient.reference(*backward)
    for a, e in zip(evaluate(gradient, backward, without=DMASK), expected, strict=True):
        close(a, e)
    names = ("qkv", "mask", "bias", "ratio", "seed")
    inputs = dict(zip(names, [qkv, *rest, *scalars], strict=True))
    _, found = gradients(operator, inputs, ["qkv"], dy, **attributes)
    close(found["qkv"], expected[0])


def test_rows_without_any_key_are_zero(isa: str, rng: np.random.Generator) -> None:
    case = Case(rng, batch=1, heads=1)
    case.mask = np.zeros((1, 1, 21, 37), np.float32)
    case.mask[..., 3, :] = -np.inf
    case.mask[..., 4, :] = np.finfo(np.float32).min
    y, *saved = evaluate(OPERATORS["FusedAttention"], case.forward)
    assert not y[0, 3].any()
    close(y[0, 4, 0], case.v[0, :, 0].mean(0))
    backward = [case.dy, *case.forward[:6], y, *saved]
    dq, dk, dv, _ = evaluate(OPERATORS["FusedAttentionGrad"], backward, without=DMASK)
    assert all(np.isfinite(x).all() for x in (dq, dk, dv))
    assert not dq[0, 3].any()


def test_threads_and_repetition_change_no_bit(rng: np.random.Generator) -> None:
    case = Case(rng, queries=130, keys=130, ratio=0.1, bias=(1, 3, 130, 130))
    results = []
    for threads in (1, 2, 2):
        forward = evaluate(OPERATORS["FusedAttention"], case.forward, threads, **case.attributes)
        backward = [case.dy, *case.forward[:6], *forward]
        results.append(forward + evaluate(OPERATORS["FusedAttentionGrad"], backward, threads, DMASK))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_mask_that_does_not_fit_is_named(rng: np.random.Generator) -> None:
    case = Case(rng)
    case.mask = np.zeros((2, 1, 1, 36), np.float32)
    with pytest.raises(Exception, match=r"mask has shape \[2,1,1,36\]; .* = \[2,3,21,37\]"):
        evaluate(OPERATORS["FusedAttention"], case.forward)


@pytest.mark.parametrize(
    "depth,rows,columns", [(0, 3, 4), (1, 1, 1), (3, 5, 7), (64, 32, 48), (300, 130, 33), (700, 25, 100)]
)
def test_weight_gradient(isa: str, rng: np.random.Generator, depth: int, rows: int, columns: int) -> None:
    inputs = [normal(rng, depth, rows), normal(rng, depth, columns)]
    operator = OPERATORS["FusedWeightGrad"]
    for threads in (1, 2):
        actual = evaluate(operator, inputs, threads)
        for a, e in zip(actual, operator.reference(*inputs), strict=True):
            close(a, e)


def test_weight_gradient_flattens_the_leading_axes(rng: np.random.Generator) -> None:
    inputs = [normal(rng, 2, 9, 6), normal(rng, 2, 9, 4)]
    close(evaluate(OPERATORS["FusedWeightGrad"], inputs)[0], np.einsum("bsn,bsk->nk", *inputs))


def test_a_trained_mask_is_refused(rng: np.random.Generator) -> None:
    case = Case(rng, mask=(2, 1, 1, 37))
    saved = evaluate(OPERATORS["FusedAttention"], case.forward)
    with pytest.raises(Exception, match="the mask gets no gradient; what is trained must come in as bias"):
        evaluate(OPERATORS["FusedAttentionGrad"], [case.dy, *case.forward[:6], *saved])
