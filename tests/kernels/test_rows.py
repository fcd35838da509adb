"""Softmax, dropout, rotary, SwiGLU, embeddings, cross-entropy, column sums: against numpy and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]
EMPTY = np.zeros(0, np.float32)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def close(actual: Array, expected: Array, tolerance: float = 3e-6) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def agrees(name: str, *inputs: Array, tolerance: float = 3e-6, **attributes: float) -> list[Array]:
    operator = OPERATORS[name]
    actual = evaluate(operator, inputs, **attributes)
    for a, e in zip(actual, operator.reference(*inputs, **attributes), strict=True):
        assert a.shape == e.shape
        close(a, e, tolerance)
    return actual


def matches_torch(
    gradients: Gradients,
    name: str,
    inputs: dict[str, Array],
    wrt: list[str],
    weight: Array,
    function: Callable[..., torch.Tensor],
    **attributes: float,
) -> None:
    """The operator's value and gradients against a torch function of the differentiated inputs."""
    outputs, found = gradients(OPERATORS[name], inputs, wrt, weight, **attributes)
    tensors = {n: torch.from_numpy(inputs[n]).requires_grad_() for n in wrt}
    y = function(**tensors)
    (y * torch.from_numpy(weight)).sum().backward()
    close(outputs[0], y.detach().numpy())
    for n, tensor in tensors.items():
        assert tensor.grad is not None
        close(found[n], tensor.grad.numpy(), 1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 3, 33), (7, 257)])
def test_softmax(isa: str, rng: np.random.Generator, gradients: Gradients, shape: tuple[int, ...]) -> None:
    x = normal(rng, *shape) * 5
    (y,) = agrees("FusedSoftmax", x)
    agrees("FusedSoftmaxGrad", normal(rng, *shape), y)
    matches_torch(gradients, "FusedSoftmax", {"x": x}, ["x"], normal(rng, *shape), lambda x: x.softmax(-1))


@pytest.mark.parametrize("shape", [(3, 5), (2, 9, 130), (64, 256)])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5])
def test_bias_dropout_add(
    isa: str, rng: np.random.Generator, gradients: Gradients, shape: tuple[int, ...], ratio: float
) -> None:
    x, bias, residual = normal(rng, *shape), normal(rng, shape[-1]), normal(rng, *shape)
    scalars = [np.array([ratio], np.float32), np.array([123456789012], np.int64)]
    for b in (bias, EMPTY):
        for r in (residual, EMPTY):
            _, key = agrees("FusedBiasDropoutAdd", x, b, r, *scalars, stream=3)
        agrees("FusedBiasDropoutAddGrad", normal(rng, *shape), b, scalars[0], key, tolerance=1e-5)
    ones, nothing = np.ones_like(x), np.zeros_like(x)
    factor, _ = evaluate(OPERATORS["FusedBiasDropoutAdd"], [ones, EMPTY, nothing, *scalars], stream=3)
    inputs = {"x": x, "bias": bias, "residual": residual, "ratio": scalars[0], "seed": scalars[1]}
    mask = torch.from_numpy(factor)
    for wrt in (["x", "bias", "residual"], ["x", "bias"], ["x", "residual"]):
        fixed = {n: torch.from_numpy(inputs[n]) for n in ("x", "bias", "residual") if n not in wrt}
        matches_torch(
            gradients,
            "FusedBiasDropoutAdd",
            inputs,
            wrt,
            normal(rng, *shape),
            lambda fixed=fixed, **t: (lambda x, bias, residual: (x + bias) * mask + residual)(**t, **fixed),
            stream=3,
        )


def test_dropout_keeps_the_right_share_and_varies() -> None:
    x = np.ones((256, 512), np.float32)
    inputs = [x, EMPTY, EMPTY, np.array([0.3], np.float32)]
    operator = OPERATORS["FusedBiasDropoutAdd"]
    first = evaluate(operator, [*inputs, np.array([1])], stream=0)[0]
    assert abs(float((first == 0).mean()) - 0.3) < 0.005
    assert abs(float((first == 0).mean(0).std()) - np.sqrt(0.3 * 0.7 / 256)) < 0.003
    for seed, stream in ((2, 0), (1, 1)):
        other = evaluate(operator, [*inputs, np.array([seed])], stream=stream)[0]
        agreement = float(((first == 0) == (other == 0)).mean())
        assert abs(agreement - (0.3**2 + 0.7**2)) < 0.01
    np.testing.assert_array_equal(evaluate(operator, [*inputs, np.array([1])], threads=2)[0], first)


@pytest.mark.parametrize("width,rotated", [(8, 8), (10, 6), (64, 64)])
@pytest.mark.parametrize("batch", [1, 2])
def test_rotary(
    isa: str, rng: np.random.Generator, gradients: Gradients, width: int, rotated: int, batch: int
) -> None:
    x, cos, sin = normal(rng, 2, 5, 3, width), normal(rng, batch, 5, rotated), normal(rng, batch, 5, rotated)
    agrees("FusedRotary", x, cos, sin)
    agrees("FusedRotaryGrad", x, cos, sin)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        c, s = torch.from_numpy(cos)[:, :, None], torch.from_numpy(sin)[:, :, None]
        turned = torch.cat([-x[..., rotated // 2 : rotated], x[..., : rotated // 2]], -1)
        return torch.cat([x[..., :rotated] * c + turned * s, x[..., rotated:]], -1)

    inputs = {"x": x, "cos": cos, "sin": sin}
    matches_torch(gradients, "FusedRotary", inputs, ["x"], normal(rng, *x.shape), rotate)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 7, 33)])
def test_swiglu(isa: str, rng: np.random.Generator, gradients: Gradients, shape: tuple[int, ...]) -> None:
    gate, up, dy = (normal(rng, *shape) * 3 for _ in range(3))
    agrees("FusedSwiGlu", gate, up)
    agrees("FusedSwiGluGrad", dy, gate, up)
    for wrt in (["gate", "up"], ["up"]):
        fixed = {} if "gate" in wrt else {"gate": torch.from_numpy(gate)}
        matches_torch(
            gradients,
            "FusedSwiGlu",
            {"gate": gate, "up": up},
            wrt,
            dy,
            lambda fixed=fixed, **t: (lambda gate, up: F.silu(gate) * up)(**fixed, **t),
        )


@pytest.mark.parametrize("vocabulary", [2, 37, 3001])
@pytest.mark.parametrize("width", [1, 24, 100])
def test_embedding(
    isa: str, rng: np.random.Generator, gradients: Gradients, vocabulary: int, width: int
) -> None:
    weight = normal(rng, vocabulary, width)
    ids = rng.integers(0, vocabulary, (3, 41))
    ids[0, :5] = 1
    agrees("FusedEmbedding", weight, ids, padding_idx=1)
    dy = normal(rng, 3, 41, width)
    for padding in (-1, 1):
        agrees("FusedEmbeddingGrad", dy, ids, weight, np.array([padding]), tolerance=1e-5)
        matches_torch(
            gradients,
            "FusedEmbedding",
            {"weight": weight, "ids": ids},
            ["weight"],
            dy,
            lambda weight, padding=padding: F.embedding(
                torch.from_numpy(ids), weight, padding_idx=None if padding < 0 else padding
            ),
            padding_idx=padding,
        )


def test_embedding_names_a_wrong_index() -> None:
    with pytest.raises(Exception, match="index 9 at position 1 is outside a table of 4 rows"):
        evaluate(OPERATORS["FusedEmbedding"], [np.zeros((4, 2), np.float32), np.array([0, 9])])


@pytest.mark.parametrize("rows,classes", [(1, 2), (7, 33), (5, 5000)])
@pytest.mark.parametrize("reduction", [0, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(
    isa: str,
    rng: np.random.Generator,
    gradients: Gradients,
    rows: int,
    classes: int,
    reduction: int,
    smoothing: float,
) -> None:
    logits, labels = normal(rng, rows, classes) * 4, rng.integers(0, classes, rows)
    if rows > 1:
        labels[1] = -100
    attributes = {"reduction": reduction, "label_smoothing": smoothing}
    _, statistics, state = evaluate(OPERATORS["FusedCrossEntropy"], [logits, labels], **attributes)
    expected = OPERATORS["FusedCrossEntropy"].reference(logits, labels, **attributes)
    np.testing.assert_allclose(statistics, expected[1], rtol=1e-6, atol=1e-6)
    agrees("FusedCrossEntropyGrad", np.array(0.7, np.float32), logits, labels, statistics, state)
    matches_torch(
        gradients,
        "FusedCrossEntropy",
        {"logits": logits, "labels": labels},
        ["logits"],
        np.array(1.5, np.float32),
        lambda logits: F.cross_entropy(
            logits,
            torch.from_numpy(labels),
            reduction=("mean", "sum")[reduction],
            label_smoothing=smoothing,
        ),
        **attributes,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [1e6, -1e7, -3.4028235e38])
def test_cross_entropy_of_large_logits(
    isa: str, gradients: Gradients, offset: float, smoothing: float
) -> None:
    """What a row has in common has no part in its loss, even where it takes up every digit."""
    logits = np.arange(24, dtype=np.float32).reshape(3, 8) % 5 + np.float32(offset)
    labels = np.array([0, 3, 7])
    matches_torch(
        gradients,
        "FusedCrossEntropy",
        {"logits": logits, "labels": labels},
        ["logits"],
        np.array(1.5, np.float32),
        lambda logits: F.cross_entropy(logits, torch.from_numpy(labels), label_smoothing=smoothing),
        label_smoothing=smoothing,
    )


def test_cross_entropy_past_the_caches(isa: str, rng: np.random.Generator) -> None:
    """A gradient large enough to be written around the caches, in rows that start at no vector boundary."""
    logits, labels = normal(rng, 141, 30523), rng.integers(0, 30523, 141)
    labels[::3] = -100
    _, statistics, state = evaluate(OPERATORS["FusedCrossEntropy"], [logits, labels])
    inputs = [np.array(1.0, np.float32), logits, labels, statistics, state]
    agrees("FusedCrossEntropyGrad", *inputs)


def test_cross_entropy_with_masked_classes(isa: str) -> None:
    logits = np.full((2, 5000), -np.inf, np.float32)
    logits[:, 4000:] = 1.0
    loss = evaluate(OPERATORS["FusedCrossEntropy"], [logits, np.array([4000, 4999])])[0]
    close(loss, np.log(np.float32(1000)), 1e-6)


def test_cross_entropy_names_a_wrong_label() -> None:
    with pytest.raises(Exception, match="label 7 of row 0 is neither one of 3 classes nor ignore_index -100"):
        evaluate(OPERATORS["FusedCrossEntropy"], [np.zeros((1, 3), np.float32), np.array([7])])


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (3, 50, 129), (4000, 16)])
def test_column_sum(isa: str, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    agrees("FusedColumnSum", normal(rng, *shape), tolerance=1e-5)
