"""The cross-entropy of a linear layer with its gradients, against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

EMPTY = np.zeros(0, np.float32)


def inputs(
    rng: np.random.Generator, rows: int, width: int, classes: int, *, bias: bool
) -> tuple[Array, Array, Array, Array]:
    x, weight, shift = (
        rng.standard_normal(s).astype(np.float32) for s in ((rows, width), (classes, width), (classes,))
    )
    labels = rng.integers(0, classes, rows)
    return x, weight / np.float32(width**0.5), shift if bias else EMPTY, labels


def in_torch(
    x: Array, weight: Array, bias: Array, labels: Array, scale: float, **options: object
) -> list[Array]:
    """dx, dweight, dbias and the loss in double precision."""
    tensors = [torch.from_numpy(a).double().requires_grad_() for a in (x, weight, bias)]
    scores = F.linear(tensors[0], tensors[1], tensors[2] if bias.size else None)
    loss = F.cross_entropy(scores, torch.from_numpy(labels), **options)  # type: ignore[arg-type]
    (loss * scale).backward()
    return [t.grad.numpy() if t.grad is not None else EMPTY for t in tensors] + [loss.detach().numpy()]


def agrees(actual: list[Array], expected: list[Array]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-5 * max(np.abs(e).max(initial=0), 1e-3))


@pytest.mark.parametrize(
    ("rows", "width", "classes"),
    [(1, 1, 2), (3, 5, 7), (129, 33, 1030), (300, 64, 4097), (127, 300, 600), (601, 20, 600)],
)
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients(
    isa: str, rng: np.random.Generator, rows: int, width: int, classes: int, bias: bool
) -> None:
    given = inputs(rng, rows, width, classes, bias=bias)
    given[3][1::3] = -100
    found = evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(0.7, np.float32), *given])
    agrees(found, in_torch(*given, 0.7))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_options(rng: np.random.Generator, reduction: str, smoothing: float) -> None:
    given = inputs(rng, 150, 48, 700, bias=True)
    given[3][::2] = 3
    options = {"ignore_index": 3, "reduction": int(reduction == "sum"), "label_smoothing": smoothing}
    found = evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(1.5, np.float32), *given], **options)
    expected = in_torch(*given, 1.5, ignore_index=3, reduction=reduction, label_smoothing=smoothing)
    agrees(found, expected)


def test_masked_classes_and_large_scores(isa: str, rng: np.random.Generator) -> None:
    """A bias of -inf takes classes out, as many as fill a block; what scores have in common has no part."""
    given = inputs(rng, 40, 16, 2000, bias=True)
    given[2][:900] = -np.inf
    given[2][900:] += 1000
    given[3][:] = rng.integers(900, 2000, 40)
    found = evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(1, np.float32), *given])
    expected = in_torch(*given, 1.0)
    np.testing.assert_allclose(found[3], expected[3], atol=1e-4)
    for a, e in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_allclose(a, e, atol=2e-5)


def test_what_is_no_number_is_seen(isa: str, rng: np.random.Generator) -> None:
    given = inputs(rng, 40, 16, 700, bias=False)
    given[0][7, 3] = np.nan
    dx, dweight, _, loss = evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(1, np.float32), *given])
    assert np.isnan(loss)
    assert np.isnan(dweight).all()
    assert np.isnan(dx[7]).all()
    assert np.isfinite(np.delete(dx, 7, 0)).all()


def test_nothing_is_labelled(rng: np.random.Generator) -> None:
    given = inputs(rng, 5, 16, 700, bias=True)
    given[3][:] = -100
    *gradients, loss = evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(1, np.float32), *given])
    assert np.isnan(loss)
    assert all(not g.any() for g in gradients)


def test_a_wrong_label_is_named(rng: np.random.Generator) -> None:
    given = inputs(rng, 5, 16, 700, bias=True)
    given[3][2] = 700
    with pytest.raises(Exception, match="label 700 of row 2 is neither one of 700 classes nor ignore_index"):
        evaluate(OPERATORS["FusedLinearCrossEntropy"], [np.array(1, np.float32), *given])
