"""What is no number, and infinity: they come out where torch's come out, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]
EMPTY = np.zeros(0, np.float32)
SPECIAL = [np.nan, np.inf, -np.inf]


def same_kind(actual: Array, expected: Any) -> None:
    """NaN where torch has NaN, an infinity where it has that, a number elsewhere."""
    wanted = expected.detach().numpy()
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(actual), np.isposinf(wanted))
    np.testing.assert_array_equal(np.isneginf(actual), np.isneginf(wanted))


def _rms_norm(x: Any, scale: Any) -> Any:
    return F.rms_norm(x, scale.shape, scale, 1e-6)


ROWWISE: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "FusedSoftmax": (["x"], lambda x: x.softmax(-1)),
    "FusedLayerNorm": (["x", "scale", "bias"], lambda x, s, b: F.layer_norm(x, s.shape, s, b, 1e-5)),
    "FusedRmsNorm": (["x", "scale"], _rms_norm),
    "FusedBiasGelu": (["x", "bias"], lambda x, b: F.gelu(x + b)),
    "FusedBiasGeluTanh": (["x", "bias"], lambda x, b: F.gelu(x + b, approximate="tanh")),
    "FusedSwiGlu": (["gate", "up"], lambda gate, up: F.silu(gate) * up),
}


@pytest.mark.parametrize("width", [4, 37])
@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", ROWWISE)
def test_rows(
    isa: str, rng: np.random.Generator, gradients: Gradients, name: str, special: float, width: int
) -> None:
    names, function = ROWWISE[name]
    vectors = ("scale", "bias")
    for poisoned in names:
        inputs = {
            n: rng.standard_normal(width if n in vectors else (3, width)).astype(np.float32) for n in names
        }
        inputs[poisoned].reshape(-1)[2] = special
        weight = rng.standard_normal((3, width)).astype(np.float32)
        outputs, found = gradients(OPERATORS[name], inputs, names, weight)
        # In doubles: the float kernel that torch takes from oneDNN gives NaN for gelu(∞), its own gives ∞.
        tensors = {n: torch.from_numpy(v).double().requires_grad_() for n, v in inputs.items()}
        y = function(*tensors.values())
        (y * torch.from_numpy(weight)).sum().backward()
        same_kind(outputs[0], y)
        if np.isnan(special):
            for n in names:
                same_kind(found[n], tensors[n].grad)


def test_softmax_of_a_row_with_a_nan_is_nan(isa: str) -> None:
    (y,) = evaluate(OPERATORS["FusedSoftmax"], [np.array([[1, 2, np.nan, 4], [1, 2, 3, 4]], np.float32)])
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


@pytest.mark.parametrize("classes", [2, 5, 3000])
@pytest.mark.parametrize("others", [0.0, -np.inf])
@pytest.mark.parametrize("special", SPECIAL)
def test_cross_entropy(
    isa: str, rng: np.random.Generator, gradients: Gradients, special: float, others: float, classes: int
) -> None:
    logits = np.full((3, classes), others, np.float32)
    logits[:, 0] = 1.0
    logits[1, classes - 1] = special
    labels = np.array([0, 0, -100])
    weight = np.array(1.0, np.float32)
    outputs, found = gradients(
        OPERATORS["FusedCrossEntropy"], {"logits": logits, "labels": labels}, ["logits"], weight
    )
    tensor = torch.from_numpy(logits).requires_grad_()
    loss = F.cross_entropy(tensor, torch.from_numpy(labels))
    loss.backward()
    same_kind(outputs[0], loss)
    same_kind(found["logits"], tensor.grad)


def test_cross_entropy_of_classes_that_are_all_masked(isa: str) -> None:
    logits = np.full((2, 7), -np.inf, np.float32)
    loss, *_ = evaluate(OPERATORS["FusedCrossEntropy"], [logits, np.array([0, 3])])
    assert np.isnan(loss)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("poisoned", ["q", "k", "v", "mask"])
def test_attention(
    isa: str, rng: np.random.Generator, gradients: Gradients, poisoned: str, masked: bool
) -> None:
    q, k, v = (rng.standard_normal((1, 9, 2, 5)).astype(np.float32) for _ in range(3))
    mask = np.zeros((1, 1, 9, 9), np.float32)
    if masked:  # every key but the one in question
        mask[..., 1:] = -np.inf
    values = {"q": q, "k": k, "v": v, "mask": mask}
    values[poisoned].reshape(-1)[0] = np.nan
    inputs = {**values, "bias": EMPTY, "ratio": np.zeros(1, np.float32), "seed": np.array([0])}
    weight = np.ones_like(q)
    outputs, found = gradients(OPERATORS["FusedAttention"], inputs, ["q", "k", "v"], weight)
    tensors = {n: torch.from_numpy(values[n]).requires_grad_() for n in "qkv"}
    a, b, c = (t.transpose(1, 2) for t in tensors.values())
    scores = a @ b.transpose(-1, -2) * 5**-0.5 + torch.from_numpy(mask)
    y = (scores.softmax(-1) @ c).transpose(1, 2)
    y.sum().backward()
    same_kind(outputs[0], y)
    for n, tensor in tensors.items():
        same_kind(found[n], tensor.grad)


@pytest.mark.parametrize("special", SPECIAL)
def test_sums_and_products(isa: str, rng: np.random.Generator, special: float) -> None:
    a, b = (rng.standard_normal((21, width)).astype(np.float32) for width in (9, 40))
    a[4, 3] = special
    c, total = evaluate(OPERATORS["FusedWeightGrad"], [a, b])
    expected = torch.from_numpy(a).T @ torch.from_numpy(b)
    same_kind(c, expected)
    same_kind(total, torch.from_numpy(a).sum(0))
    same_kind(evaluate(OPERATORS["FusedColumnSum"], [a])[0], torch.from_numpy(a).sum(0))


@pytest.mark.parametrize("special", SPECIAL)
def test_dropout_keeps_what_is_no_number(isa: str, rng: np.random.Generator, special: float) -> None:
    x = np.full((4, 33), special, np.float32)
    scalars = [np.array([0.5], np.float32), np.array([3])]
    y, _ = evaluate(OPERATORS["FusedBiasDropoutAdd"], [x, EMPTY, EMPTY, *scalars])
    kept, _ = evaluate(OPERATORS["FusedBiasDropoutAdd"], [np.ones_like(x), EMPTY, EMPTY, *scalars])
    same_kind(y, torch.from_numpy(x) * torch.from_numpy(kept))


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_clipping_by_a_norm_that_is_none(isa: str, special: float) -> None:
    """As with torch's clip_grad_norm_: every gradient becomes NaN, or 0 but where it was infinite."""
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(20))]
    gradients = [np.ones(3, np.float32), np.ones(20, np.float32)]
    gradients[0][1] = special
    ours = [p.detach().numpy().copy() for p in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.from_numpy(gradient.copy())
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    torch.optim.SGD(parameters, lr=0.1).step()
    scalars = [np.array([0.1]), np.array([0.0]), np.array([0.0, 0.0]), np.array([0])]
    scalars += [np.ones(1, np.float32), np.ones(1, np.float32), np.array([True])]
    evaluate(OPERATORS["FusedSgd"], [*scalars, *ours, *gradients])
    for parameter, mine in zip(parameters, ours, strict=True):
        same_kind(mine, parameter)
        np.testing.assert_allclose(mine, parameter.detach().numpy(), rtol=1e-6)
