"""FusedAdamW and FusedSgd follow torch's optimizers step by step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import build_model, create_session
from fuseline.kernels.operator import Array
from fuseline.kernels.optimizer import FusedAdamW

SHAPES = [(3, 5), (1,), (129,), (64, 33), (70000,)]


class Bound:
    """One optimizer node over bound memory, as a training session holds it."""

    def __init__(
        self, name: str, hyper: list[float], kinds: int, threads: int = 1, **attributes: int
    ) -> None:
        rng = np.random.default_rng(3)
        self.lists = [[np.zeros(s, np.float32) for s in SHAPES] for _ in range(kinds)]
        for parameter in self.lists[0]:
            parameter[...] = rng.standard_normal(parameter.shape)
        self.scalars: dict[str, Array] = {
            "learning_rate": np.array([1e-2], np.float64),
            "weight_decay": np.array([0.0 if len(s) == 1 else 0.1 for s in SHAPES], np.float64),
            "hyper": np.array(hyper, np.float64),
            "step": np.array([0], np.int64),
            "max_norm": np.array([1.0], np.float32),
            "gradient_scale": np.array([1.0], np.float32),
            "apply": np.array([True]),
        }
        inputs = [*self.scalars.values(), *(t for group in self.lists for t in group)]
        self.session = create_session(build_model(OPERATORS[name], inputs, dict(attributes)), threads)
        self.inputs = inputs

    def step(self) -> tuple[bool, float]:
        binding = self.session.io_binding()
        for i, value in enumerate(self.inputs):
            binding.bind_input(f"in{i}", "cpu", 0, value.dtype, value.shape, value.ctypes.data)
        binding.bind_output("applied")
        binding.bind_output("gradient_norm")
        self.session.run_with_iobinding(binding)
        applied, norm = binding.copy_outputs_to_cpu()
        return bool(applied[0]), float(norm[0])


def torch_parameters(bound: Bound) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.from_numpy(p.copy())) for p in bound.lists[0]]


def groups(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    decayed = [p for p in parameters if p.ndim > 1]
    plain = [p for p in parameters if p.ndim == 1]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]


def follow(
    bound: Bound, optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], max_norm: float
) -> None:
    rng = np.random.default_rng(5)
    for step in range(25):
        rate = 1e-2 * (1 - step / 40)
        bound.scalars["learning_rate"][0] = rate
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters, bound.lists[1], strict=True):
            gradient[...] = rng.standard_normal(gradient.shape)
            parameter.grad = torch.from_numpy(gradient.copy())
        if max_norm:
            expected = float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
        optimizer.step()
        applied, norm = bound.step()
        assert applied
        if max_norm:
            assert norm == pytest.approx(expected, rel=1e-6)
    assert bound.scalars["step"][0] == 25
    for ours, theirs in zip(bound.lists[0], parameters, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_adamw_follows_torch(isa: str, max_norm: float) -> None:
    bound = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4)
    bound.scalars["max_norm"][0] = max_norm
    parameters = torch_parameters(bound)
    optimizer = torch.optim.AdamW(groups(parameters), lr=1e-2)
    follow(bound, optimizer, parameters, max_norm)
    for parameter, m, v in zip(parameters, bound.lists[2], bound.lists[3], strict=True):
        state = optimizer.state[parameter]
        np.testing.assert_allclose(m, state["exp_avg"].numpy(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(v, state["exp_avg_sq"].numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "momentum,dampening,nesterov", [(0.0, 0.0, 0), (0.9, 0.0, 0), (0.9, 0.1, 0), (0.9, 0.0, 1)]
)
def test_sgd_follows_torch(isa: str, momentum: float, dampening: float, nesterov: int) -> None:
    bound = Bound("FusedSgd", [momentum, dampening], 3 if momentum else 2, nesterov=nesterov)
    parameters = torch_parameters(bound)
    optimizer = torch.optim.SGD(
        groups(parameters), lr=1e-2, momentum=momentum, dampening=dampening, nesterov=bool(nesterov)
    )
    follow(bound, optimizer, parameters, 1.0)


def test_gradient_scale_and_zeroing() -> None:
    scaled = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4, zero_gradients=1)
    plain = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4)
    scaled.scalars["gradient_scale"][0] = 1 / 1024
    for a, b in zip(scaled.lists[1], plain.lists[1], strict=True):
        b[...] = np.linspace(-1, 1, b.size).reshape(b.shape)
        a[...] = b * 1024
    assert scaled.step()[1] == pytest.approx(plain.step()[1], rel=1e-6)
    for a, b in zip(scaled.lists[0], plain.lists[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-7)
    assert all(not g.any() for g in scaled.lists[1])
    assert any(g.any() for g in plain.lists[1])


@pytest.mark.parametrize("reason", ["overflow", "apply"])
def test_a_skipped_step_changes_nothing(reason: str) -> None:
    bound = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4, skip_nonfinite=1)
    for gradient in bound.lists[1]:
        gradient[...] = 1
    if reason == "overflow":
        bound.lists[1][2][7] = np.inf
    bound.scalars["apply"][0] = reason != "apply"
    before = [t.copy() for group in bound.lists for t in group]
    applied, _ = bound.step()
    assert not applied
    assert bound.scalars["step"][0] == 0
    for old, new in zip(before, (t for group in bound.lists for t in group), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_number_of_threads_changes_no_bit() -> None:
    results = []
    for threads in (1, 2):
        bound = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4, threads=threads)
        for gradient in bound.lists[1]:
            gradient[...] = np.cos(np.arange(gradient.size)).reshape(gradient.shape)
        norm = bound.step()[1]
        results.append((norm, [p.copy() for p in bound.lists[0]]))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_numpy_reference_agrees() -> None:
    bound = Bound("FusedAdamW", [0.9, 0.98, 1e-6], 4)
    for gradient in bound.lists[1]:
        gradient[...] = np.sin(np.arange(gradient.size)).reshape(gradient.shape)
    copies = [value.copy() for value in bound.inputs]
    applied, norm = bound.step()
    expected = OPERATORS["FusedAdamW"].reference(*copies)
    assert applied == expected[0][0]
    assert norm == pytest.approx(float(expected[1][0]), rel=1e-6)
    for actual, reference in zip(bound.inputs, copies, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=0, atol=1e-6)


def test_the_torch_optimizer_follows_torch_and_shares_its_checkpoints() -> None:
    bound = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4)
    theirs, ours = torch_parameters(bound), torch_parameters(bound)
    reference = torch.optim.AdamW(groups(theirs), lr=1e-2, betas=(0.8, 0.99))
    optimizer: torch.optim.Optimizer = FusedAdamW(groups(ours), lr=1e-2, betas=(0.8, 0.99), max_norm=1.0)
    rng = np.random.default_rng(11)
    for step in range(24):
        if step == 12:  # the checkpoint of one continues in the other
            optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
        for a, b in zip(theirs, ours, strict=True):
            gradient = torch.from_numpy(rng.standard_normal(a.shape).astype(np.float32))
            a.grad, b.grad = gradient.clone(), gradient.clone()
        norm = float(torch.nn.utils.clip_grad_norm_(theirs, 1.0))
        reference.step()
        optimizer.step()
        assert optimizer.grad_norm == pytest.approx(norm, rel=1e-6)  # type: ignore[attr-defined]
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=0, atol=2e-6)
    mine, expected = optimizer.state_dict(), reference.state_dict()
    assert mine["state"].keys() == expected["state"].keys()
    for key, state in mine["state"].items():
        assert {n: v.shape for n, v in state.items()} == {
            n: v.shape for n, v in expected["state"][key].items()
        }
        assert state["step"] == 24


def test_the_torch_optimizer_zeroes_and_skips() -> None:
    parameter = torch.nn.Parameter(torch.ones(5))
    optimizer = FusedAdamW([parameter], zero_grads=True, skip_nonfinite=True)
    parameter.grad = torch.full((5,), torch.inf)
    optimizer.step()
    assert torch.equal(parameter.detach(), torch.ones(5))
    assert optimizer.state[parameter]["step"] == 0
    parameter.grad = torch.ones(5)
    optimizer.step()
    assert not torch.equal(parameter.detach(), torch.ones(5))
    assert not parameter.grad.any()


def test_the_torch_optimizer_refuses_what_it_cannot_hold() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    parameter.grad = torch.ones(4, dtype=torch.float64)
    with pytest.raises(ValueError, match="contiguous float32 tensors on the CPU"):
        FusedAdamW([parameter]).step()


def test_rows_without_gradients_only_decay() -> None:
    """Elements whose gradient and moments are zero take a shorter way to the same result."""
    bound = Bound("FusedAdamW", [0.9, 0.999, 1e-8], 4)
    bound.scalars["weight_decay"][:] = 0.1
    for gradient in bound.lists[1]:
        gradient.reshape(-1)[::200] = 1.0
    copies = [value.copy() for value in bound.inputs]
    bound.step()
    OPERATORS["FusedAdamW"].reference(*copies)
    for actual, reference in zip(bound.inputs, copies, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=0, atol=1e-6)
