"""Linear layers in bf16: against numpy, torch, and themselves on every instruction set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fuseline.kernels import OPERATORS, instruction_set
from fuseline.kernels.evaluate import evaluate
from fuseline.kernels.loader import native
from fuseline.kernels.operator import Array
from fuseline.kernels.ops.linear import round_to_bf16

Gradients = Callable[..., tuple[list[Array], dict[str, Array]]]
SHAPES = [(1, 1, 1), (5, 3, 4), (97, 33, 40), (13, 1600, 200), (300, 130, 257), (0, 4, 3), (3, 0, 4)]
FORWARD, BACKWARD = OPERATORS["FusedLinearBf16"], OPERATORS["FusedLinearBf16Grad"]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def operands(rng: np.random.Generator, rows: int, inputs: int, outputs: int, transposed: int) -> list[Array]:
    weight = normal(rng, outputs, inputs) if transposed else normal(rng, inputs, outputs)
    return [normal(rng, rows, inputs), weight, normal(rng, outputs)]


def close(actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 * scale)


@pytest.mark.parametrize("transposed", [1, 0])
@pytest.mark.parametrize("rows,inputs,outputs", SHAPES)
def test_linear_matches_numpy(
    isa: str, rng: np.random.Generator, rows: int, inputs: int, outputs: int, transposed: int
) -> None:
    values = operands(rng, rows, inputs, outputs, transposed)
    for bias in (values[2], np.zeros(0, np.float32)):
        given = [*values[:2], bias]
        actual = evaluate(FORWARD, given, 2, transposed=transposed)
        for a, e in zip(actual, FORWARD.reference(*given, transposed=transposed), strict=True):
            close(a, e)
        np.testing.assert_array_equal(actual[1], round_to_bf16(values[0]))
        backward = [normal(rng, rows, outputs), actual[1], values[1], bias, actual[2]]
        for a, e in zip(evaluate(BACKWARD, backward, 2), BACKWARD.reference(*backward), strict=True):
            close(a, e)


def test_every_instruction_set_gives_the_same_bits(rng: np.random.Generator) -> None:
    """Products of bf16 are exact in floats, so that only the order of the additions counts, and it is one."""
    values = operands(rng, 200, 1700, 150, 1)
    dy, results, before = normal(rng, 200, 150), [], instruction_set()
    for isa in ("portable", "avx2", "avx512", "avx512bf16"):
        if native().fuseline_use_isa(isa.encode()):
            forward = evaluate(FORWARD, values)
            backward = [dy, forward[1], values[1], values[2], forward[2]]
            results.append([forward[0], *evaluate(BACKWARD, backward, 2)[:2]])
    native().fuseline_use_isa(before.encode())
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("transposed", [1, 0])
def test_gradients_are_as_close_as_torchs(
    isa: str, rng: np.random.Generator, gradients: Gradients, transposed: int
) -> None:
    """The distance to fp32 is no larger than that of torch's own bf16 autocast."""
    x, weight, bias = operands(rng, 200, 300, 96, transposed)
    dy = normal(rng, 200, 96)
    inputs = {"x": x, "weight": weight, "bias": bias}
    outputs, found = gradients(FORWARD, inputs, ["x", "weight", "bias"], dy, transposed=transposed)
    results = []
    for enabled in (False, True):
        tensors = {n: torch.from_numpy(v.copy()).requires_grad_() for n, v in inputs.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            w = tensors["weight"] if transposed else tensors["weight"].T
            y = torch.nn.functional.linear(tensors["x"], w, tensors["bias"])
        (y * torch.from_numpy(dy)).sum().backward()
        results.append([y, *(t.grad for t in tensors.values())])
    ours = [outputs[0], *(found[n] for n in inputs)]
    for mine, full, low in zip(ours, *results, strict=True):
        exact = full.detach().numpy()
        distance = np.linalg.norm(mine - exact)
        assert distance <= np.linalg.norm(low.detach().float().numpy() - exact)
        assert distance <= 4e-3 * np.linalg.norm(exact)


def test_rounding_is_to_the_nearest_and_ties_to_even(isa: str) -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, 1.0039063, -1.00390625, 3.4e38, 1e-40], np.float32)
    x = np.concatenate([x, [np.inf, -np.inf, np.nan]]).astype(np.float32).repeat(5)[None]
    weight = np.zeros((1, x.size), np.float32)
    _, rounded, _ = evaluate(FORWARD, [x, weight, np.zeros(0, np.float32)])
    np.testing.assert_array_equal(rounded, torch.from_numpy(x).bfloat16().float().numpy())


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_what_is_no_number_comes_through(isa: str, rng: np.random.Generator, special: float) -> None:
    x, weight, bias = operands(rng, 30, 70, 50, 1)
    x[4, 3] = special
    y, rounded, state = evaluate(FORWARD, [x, weight, bias])
    assert (~np.isfinite(y[4])).all()
    assert np.isfinite(np.delete(y, 4, 0)).all()
    dy = normal(rng, 30, 50)
    _, dweight, _ = evaluate(BACKWARD, [dy, rounded, weight, bias, state])
    assert (~np.isfinite(dweight[:, 3])).all()
    assert np.isfinite(np.delete(dweight, 3, 1)).all()


def test_a_weight_that_lies_the_other_way_is_refused(rng: np.random.Generator) -> None:
    values = operands(rng, 4, 6, 5, 0)
    with pytest.raises(Exception, match=r"weight \[6,5\] is not \[outputs, 6\]"):
        evaluate(FORWARD, values, transposed=1)
