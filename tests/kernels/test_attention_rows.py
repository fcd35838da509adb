"""Attention over the tokens that there are: against numpy, whole sequences and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]
EMPTY = np.zeros(0, np.float32)
ALL = np.zeros(0, np.int64)
DMASK = ("dmask",)  # there is no such gradient
LOWEST = float(np.finfo(np.float32).min)


def close(actual: Array, expected: Array, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


CASES: dict[str, dict[str, Any]] = {
    "right": {"padding": "right"},
    "left": {"padding": "left"},
    "middle": {"padding": "middle"},
    "sparse": {"density": 0.1},
    "full": {"density": 1.0},
    "one": {"batch": 1, "queries": 1, "keys": 1, "width": 1, "density": 1.0},
    "long": {"queries": 130, "keys": 530, "batch": 2, "width": 24, "heads": 2, "groups": 1},
    "causal": {"queries": 37, "keys": 37, "causal": 1},
    "causal_right": {"queries": 37, "keys": 37, "causal": 1, "padding": "right"},
    "causal_cross": {"queries": 9, "keys": 37, "causal": 1},
    "grouped": {"heads": 4, "groups": 2, "causal": 1, "queries": 37},
    "mask": {"mask": (3, 1, 1, 37)},
    "mask_of_queries": {"mask": (3, 1, 21, 37), "padding": "left"},
    "bias": {"bias": (1, 4, 21, 37)},
    "alibi": {"bias": (1, 4, 1, 37), "padding": "right"},
    "bias_per_entry": {"bias": (3, 4, 21, 37), "mask": (3, 1, 1, 37), "padding": "right"},
    "bias_per_entry_middle": {"bias": (3, 4, 21, 37), "mask": (3, 1, 1, 37)},
    "bias_over_all": {"bias": (1, 1, 21, 37)},
    "bias_over_keys": {"bias": (1, 4, 21, 1)},
    "dropout": {"ratio": 0.3},
    "dropout_right": {"ratio": 0.3, "padding": "right"},
    "blind": {"mask": (3, 1, 21, 37), "hidden": 1.0, "lowest": LOWEST},
    "scaled": {"scale": 1.0},
    "all_queries": {"whole_queries": True},
    "all_keys": {"whole_keys": True, "mask": (3, 1, 1, 37)},
}


class Case:
    def __init__(self, rng: np.random.Generator, **options: Any) -> None:
        self.batch, self.heads = options.get("batch", 3), options.get("heads", 4)
        self.queries, self.keys = options.get("queries", 21), options.get("keys", 37)
        groups, width = options.get("groups", self.heads), options.get("width", 16)
        self.query_rows = self._rows(rng, self.queries, options)
        # As many tokens as the whole has, if it is one sequence that asks itself.
        same = self.queries == self.keys
        self.key_rows = self.query_rows if same else self._rows(rng, self.keys, options)
        if options.get("whole_queries"):
            self.query_rows = np.arange(self.batch * self.queries)
        if options.get("whole_keys"):
            self.key_rows = np.arange(self.batch * self.keys)

        def normal(*shape: int) -> Array:
            return rng.standard_normal(shape).astype(np.float32)

        self.q = normal(len(self.query_rows), self.heads, width)
        self.k, self.v = (normal(len(self.key_rows), groups, width) for _ in range(2))
        hidden = rng.random(options.get("mask", 0)) < options.get("hidden", 0.3)
        self.mask = np.where(hidden, np.float32(options.get("lowest", -1e9)), np.float32(0))
        self.bias = normal(*options["bias"]) if options.get("bias") else EMPTY
        self.ratio = np.array([options.get("ratio", 0.0)], np.float32)
        self.dy = normal(*self.q.shape)
        names = ("scale", "causal", "lowest")
        self.attributes = {n: options[n] for n in names if n in options} | {"stream": 2}

    def _rows(self, rng: np.random.Generator, length: int, options: dict[str, Any]) -> Array:
        present = rng.random((self.batch, length)) < options.get("density", 0.6)
        if "padding" in options and options["padding"] != "middle":
            counts = rng.integers(1, length + 1, (self.batch, 1))
            present = np.arange(length) < counts
            present = present if options["padding"] == "right" else present[:, ::-1]
        present[0, -1] = True  # at least one
        return np.flatnonzero(present)

    @property
    def sizes(self) -> Array:
        return np.array([self.batch, self.queries, self.keys])

    @property
    def forward(self) -> list[Array]:
        rows = [self.query_rows, self.key_rows, self.sizes]
        return [self.q, self.k, self.v, self.mask, self.bias, self.ratio, np.array([42]), *rows]

    @property
    def named(self) -> dict[str, Array]:
        return {
            port.name: value
            for port, value in zip(OPERATORS["FusedAttentionRows"].inputs, self.forward, strict=True)
        }


@pytest.mark.parametrize("name", CASES)
def test_matches_numpy(isa: str, rng: np.random.Generator, name: str) -> None:
    case = Case(rng, **CASES[name])
    operator, gradient = OPERATORS["FusedAttentionRows"], OPERATORS["FusedAttentionRowsGrad"]
    actual = evaluate(operator, case.forward, **case.attributes)
    for a, e in zip(actual, operator.reference(*case.forward, **case.attributes), strict=True):
        close(a, e)
    backward = [case.dy, *case.forward[:6], *actual, *case.forward[7:]]
    for a, e in zip(evaluate(gradient, backward, without=DMASK), gradient.reference(*backward), strict=True):
        close(a, e)


@pytest.mark.parametrize("name", [n for n in CASES if "dropout" not in n and n != "blind"])
def test_gradients_match_torch(rng: np.random.Generator, gradients: Gradients, name: str) -> None:
    """One sequence after the other, without the tokens that are not there."""
    case = Case(rng, **CASES[name])
    wrt = ["q", "k", "v", *(["bias"] if case.bias.size else [])]
    outputs, found = gradients(OPERATORS["FusedAttentionRows"], case.named, wrt, case.dy, **case.attributes)
    tensors = {n: torch.tensor(case.named[n], requires_grad=True) for n in wrt}
    y = _torch_rows(case, tensors)
    torch.autograd.backward((y * torch.from_numpy(case.dy)).sum())
    close(outputs[0], y.detach().numpy())
    for n in wrt:
        expected = tensors[n].grad
        close(found[n], np.zeros_like(case.named[n]) if expected is None else expected.numpy())


def _torch_rows(case: Case, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    shape = (case.batch, case.heads, case.queries, case.keys)
    added = torch.zeros(shape) + (torch.from_numpy(case.mask) if case.mask.size else 0)
    added = added + tensors.get("bias", 0)
    if case.attributes.get("causal"):
        seen = torch.ones(case.queries, case.keys, dtype=torch.bool).tril(case.keys - case.queries)
        added = added.masked_fill(~seen, -torch.inf)
    parts = []
    for entry in range(case.batch):
        mine = np.flatnonzero(case.query_rows // case.queries == entry)
        keys = np.flatnonzero(case.key_rows // case.keys == entry)
        there = case.query_rows[mine] % case.queries, case.key_rows[keys] % case.keys
        q, k, v = tensors["q"][mine], tensors["k"][keys], tensors["v"][keys]
        k, v = (x.repeat_interleave(case.heads // x.shape[1], 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (case.attributes.get("scale") or q.shape[-1] ** -0.5)
        scores = scores + added[entry][:, there[0]][:, :, there[1]]
        weights = scores.softmax(-1).nan_to_num(0)  # a query that sees nothing
        parts.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(parts)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("padding", ["right", "middle"])
def test_packed_equals_separate(isa: str, rng: np.random.Generator, interleaved: int, padding: str) -> None:
    case = Case(rng, queries=37, padding=padding, ratio=0.3, bias=(1, 4, 37, 37), mask=(3, 1, 1, 37))
    axis = 2 if interleaved else 1
    qkv = np.stack([case.q, case.k, case.v], axis)
    tail = [case.mask, case.bias, case.ratio]
    last = [case.key_rows, case.sizes]
    separate = evaluate(OPERATORS["FusedAttentionRows"], case.forward, **case.attributes)
    attributes = case.attributes | {"interleaved": interleaved}
    packed = evaluate(
        OPERATORS["FusedAttentionPackedRows"], [qkv, *tail, np.array([42]), *last], **attributes
    )
    np.testing.assert_array_equal(packed[0], separate[0])
    np.testing.assert_array_equal(packed[1], separate[1])
    dqkv, dbias = evaluate(
        OPERATORS["FusedAttentionPackedRowsGrad"], [case.dy, qkv, *tail, *packed, *last], without=DMASK
    )
    *parts, expected = evaluate(
        OPERATORS["FusedAttentionRowsGrad"],
        [case.dy, *case.forward[:6], *separate, *case.forward[7:]],
        without=DMASK,
    )
    np.testing.assert_array_equal(dqkv, np.stack(parts, axis))
    np.testing.assert_array_equal(dbias, expected)


def test_all_tokens_are_the_whole(rng: np.random.Generator) -> None:
    case = Case(rng, density=1.0, mask=(3, 1, 1, 37), bias=(1, 4, 21, 37))
    shapes = ((3, 21), (3, 37), (3, 37))
    whole = [x.reshape(*s, *x.shape[1:]) for x, s in zip((case.q, case.k, case.v), shapes, strict=True)]
    expected, *_ = evaluate(OPERATORS["FusedAttention"], [*whole, *case.forward[3:7]], **case.attributes)
    for rows in (case.forward[7:9], [ALL, ALL]):
        inputs = [*case.forward[:7], *rows, case.sizes]
        y, *_ = evaluate(OPERATORS["FusedAttentionRows"], inputs, **case.attributes)
        np.testing.assert_array_equal(y.reshape(expected.shape), expected)


def test_sequences_without_queries_or_keys(rng: np.random.Generator) -> None:
    case = Case(rng, batch=2)
    case.query_rows, case.key_rows = np.arange(21, 42), np.arange(37)  # of the second and of the first
    case.q, case.dy = (x[rng.integers(0, len(x), 21)] for x in (case.q, case.dy))
    case.k, case.v = (x[rng.integers(0, len(x), 37)] for x in (case.k, case.v))
    saved = evaluate(OPERATORS["FusedAttentionRows"], case.forward, **case.attributes)
    assert not saved[0].any()
    backward = [case.dy, *case.forward[:6], *saved, *case.forward[7:]]
    for gradient in evaluate(OPERATORS["FusedAttentionRowsGrad"], backward, without=("dmask", "dbias")):
        assert not gradient.any()


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [-1, 1], [0, 111]])
def test_rows_that_are_none_give_an_error(rng: np.random.Generator, rows: list[int]) -> None:
    case = Case(rng)
    case.key_rows = np.array([*rows, *case.key_rows])[: len(case.k)]
    with pytest.raises(Exception, match="key_rows must rise and stay below 3×37"):
        evaluate(OPERATORS["FusedAttentionRows"], case.forward)


def test_a_mask_of_other_sizes_is_named(rng: np.random.Generator) -> None:
    case = Case(rng)
    case.mask = np.zeros((3, 1, 1, 36), np.float32)
    with pytest.raises(Exception, match=r"mask has the shape \[3,1,1,36\], which does not broadcast to"):
        evaluate(OPERATORS["FusedAttentionRows"], case.forward)


def test_numbers_that_are_none_go_through(rng: np.random.Generator) -> None:
    """Within the sequence that has one, and no further."""
    case = Case(rng, padding="right")
    case.k[0] = np.nan
    y, *_ = evaluate(OPERATORS["FusedAttentionRows"], case.forward)
    first = case.query_rows < case.queries
    assert np.isnan(y[first]).all()
    assert np.isfinite(y[~first]).all()
