"""Normalisation and GELU: against numpy, and against torch's autograd through the gradient builder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.operator import Array

SHAPES = [(1, 1), (3, 5), (2, 7, 33), (4, 64), (5, 130)]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def close(actual: Array, expected: Array, tolerance: float = 3e-6) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_matches_numpy(
    isa: str, rng: np.random.Generator, shape: tuple[int, ...], bias: bool
) -> None:
    operator = OPERATORS["FusedLayerNorm"]
    x, scale = normal(rng, *shape) * 3 + 1, normal(rng, shape[-1])
    inputs = [x, scale, normal(rng, shape[-1] if bias else 0)]
    expected = operator.reference(*inputs, epsilon=1e-5)
    actual = evaluate(operator, inputs, epsilon=1e-5)
    for a, e in zip(actual, expected, strict=True):
        close(a, e, 1e-5)
    backward = [normal(rng, *shape), x, scale, actual[1], actual[2]]
    operator = OPERATORS["FusedLayerNormGrad"]
    for a, e in zip(evaluate(operator, backward), operator.reference(*backward), strict=True):
        close(a, e, 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_matches_numpy(
    isa: str, rng: np.random.Generator, shape: tuple[int, ...], offset: float
) -> None:
    operator = OPERATORS["FusedRmsNorm"]
    x, scale = normal(rng, *shape) * 3 + 1, normal(rng, shape[-1])
    actual = evaluate(operator, [x, scale], epsilon=1e-6, offset=offset)
    for a, e in zip(actual, operator.reference(x, scale, 1e-6, offset), strict=True):
        close(a, e)
    backward = [normal(rng, *shape), x, scale, actual[1], actual[2]]
    operator = OPERATORS["FusedRmsNormGrad"]
    for a, e in zip(evaluate(operator, backward), operator.reference(*backward), strict=True):
        close(a, e, 1e-5)


@pytest.mark.parametrize("name", ["FusedBiasGelu", "FusedBiasGeluTanh"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_gelu_matches_numpy(
    isa: str, rng: np.random.Generator, name: str, shape: tuple[int, ...], bias: bool
) -> None:
    x, b = normal(rng, *shape) * 4, normal(rng, shape[-1] if bias else 0)
    operator, gradient = OPERATORS[name], OPERATORS[f"{name}Grad"]
    close(evaluate(operator, [x, b])[0], operator.reference(x, b)[0])
    backward = [normal(rng, *shape), x, b]
    actual, expected = evaluate(gradient, backward), gradient.reference(*backward)
    close(actual[0], expected[0])
    close(actual[1], expected[1])


def test_gelu_far_from_zero_saturates(isa: str) -> None:
    x = np.array([[-1e4, -90.0, -20.0, -5.0, 0.0, 5.0, 20.0, 90.0, 1e4]], np.float32)
    for name in ("FusedBiasGelu", "FusedBiasGeluTanh"):
        close(evaluate(OPERATORS[name], [x, x[0, :0]])[0], np.maximum(x, 0), 1e-5)


@pytest.mark.parametrize(
    "name,attributes,function",
    [
        ("FusedLayerNorm", {"epsilon": 1e-5}, lambda x, s, b: F.layer_norm(x, s.shape, s, b, 1e-5)),
        ("FusedRmsNorm", {"epsilon": 1e-6}, lambda x, s: F.rms_norm(x, s.shape, s, 1e-6)),
        ("FusedBiasGelu", {}, lambda x, b: F.gelu(x + b)),
        ("FusedBiasGeluTanh", {}, lambda x, b: F.gelu(x + b, approximate="tanh")),
    ],
)
@pytest.mark.parametrize("shape", [(3, 5), (2, 9, 48)])
def test_gradients_match_torch(
    isa: str,
    gradients: Callable[..., tuple[list[Array], dict[str, Array]]],
    rng: np.random.Generator,
    name: str,
    attributes: dict[str, float],
    function: Callable[..., torch.Tensor],
    shape: tuple[int, ...],
) -> None:
    operator = OPERATORS[name]
    names = [item.name for item in operator.inputs]
    inputs = {n: normal(rng, *(shape if i == 0 else shape[-1:])) for i, n in enumerate(names)}
    weight = normal(rng, *shape)
    outputs, found = gradients(operator, inputs, names, weight, **attributes)
    tensors = {n: torch.from_numpy(v).requires_grad_() for n, v in inputs.items()}
    y = function(*tensors.values())
    (y * torch.from_numpy(weight)).sum().backward()
    close(outputs[0], y.detach().numpy())
    for n, tensor in tensors.items():
        assert tensor.grad is not None
        close(found[n], tensor.grad.numpy(), 1e-5)


@pytest.mark.parametrize("wrt", [["scale"], ["bias"], ["x"], ["scale", "bias"], ["x", "bias"]])
def test_only_wanted_gradients_are_computed(
    gradients: Callable[..., tuple[list[Array], dict[str, Array]]], rng: np.random.Generator, wrt: list[str]
) -> None:
    operator = OPERATORS["FusedLayerNorm"]
    inputs = {"x": normal(rng, 4, 6), "scale": normal(rng, 6), "bias": normal(rng, 6)}
    weight = normal(rng, 4, 6)
    _, every = gradients(operator, inputs, ["x", "scale", "bias"], weight)
    _, found = gradients(operator, inputs, wrt, weight)
    for name in wrt:
        close(found[name], every[name])


def test_wrong_width_is_named(rng: np.random.Generator) -> None:
    with pytest.raises(Exception, match=r"scale has shape \[3\]; expected \[N\] = \[4\]"):
        evaluate(OPERATORS["FusedLayerNorm"], [normal(rng, 2, 4), normal(rng, 3), normal(rng, 0)])
