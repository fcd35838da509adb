"""What torch's autograd is told about gradients holds in the graph: every case against torch's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fuseline.engine.model import Model
from fuseline.exporters import export
from fuseline.exporters.errors import ExportError
from fuseline.exporters.planning import make_plan
from fuseline.exporters.sources import resolve
from fuseline.tools.gradient_check import gradient_report


class Reversed(torch.autograd.Function):
    """Gradient reversal, in the older style."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return -ctx.strength * gradient, None


class StraightThrough(torch.autograd.Function):
    """Rounding whose gradient passes where |x| ≤ 1."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:  # type: ignore[override]
        return torch.round(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class Product(torch.autograd.Function):
    """A matrix product with a backward of its own for both operands, three times too large for one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return gradient @ weight, 3 * gradient.t() @ x


class Clipped(torch.autograd.Function):
    """An identity that clips the gradient: not linear, so no graph can hold it this way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.clamp(-0.1, 0.1)


straight_through = StraightThrough.apply


class Net(nn.Module):
    """Two linear layers with something between them."""

    def __init__(self, between: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(6, 6), nn.Linear(6, 3), between

    def forward(self, x: Tensor) -> Tensor:
        return F.cross_entropy(self.second(self.between(self, self.first(x))), x.argmax(dim=1) % 3)


def _no_grad_backbone(net: Net, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(net.first(hidden)) + 1


def _partly_frozen(net: Net, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        scale = hidden.abs().max(dim=1, keepdim=True).values
    return hidden / scale


def _inference_mode(net: Net, hidden: Tensor) -> Tensor:
    with torch.inference_mode():
        # Torch refuses such a tensor in autograd unless it is copied outside.
        scale = torch.sigmoid(net.first(hidden))
    return hidden * scale.clone()


def _in_place_without_gradient(net: Net, hidden: Tensor) -> Tensor:
    kept = torch.zeros_like(hidden)
    with torch.no_grad():
        kept.copy_(hidden.exp())
    return hidden * kept


CASES: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "linear probe": lambda net, hidden: hidden.detach(),
    "detach in place": lambda net, hidden: hidden.clone().detach_() + 0.5 * hidden,
    "no_grad backbone": _no_grad_backbone,
    "no_grad statistics": _partly_frozen,
    "inference mode": _inference_mode,
    "written without gradient": _in_place_without_gradient,
    "straight through by detach": lambda net, hidden: hidden + (torch.round(hidden) - hidden).detach(),
    "straight through function": lambda net, hidden: straight_through(hidden),
    "gradient reversal": lambda net, hidden: Reversed.apply(hidden, 0.7),
    "own product": lambda net, hidden: Product.apply(hidden, net.first.weight),
    "checkpointed": lambda net, hidden: torch.utils.checkpoint.checkpoint(
        net.first, hidden, use_reentrant=False
    ),
}


def assert_trains_like_torch(module: nn.Module, **inputs: Tensor) -> Model:
    """The module returns its loss; loss and gradients of the graph are torch's."""
    source = resolve(module)
    options: dict[str, Any] = {"example_inputs": inputs}
    model = export(source, train=True, **options)
    report = gradient_report(model, make_plan(source, train=True, **options))
    assert report.ok, report.worst
    return model


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    assert_trains_like_torch(Net(CASES[name]).train(), x=torch.randn(5, 6))


class Embedded(nn.Module):
    """A classifier over looked-up rows."""

    def __init__(self, look_up: Callable[[nn.Embedding, Tensor], Tensor], **options: Any) -> None:
        super().__init__()
        self.table, self.head, self.look_up = nn.Embedding(9, 6, **options), nn.Linear(6, 3), look_up

    def forward(self, ids: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.look_up(self.table, ids).sum(dim=1)), ids[:, 0] % 3)


@pytest.mark.parametrize("name", ["frequency", "padding", "functional padding"])
def test_embeddings_with_a_gradient_of_their_own(name: str) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "frequency": {"scale_grad_by_freq": True},
        "padding": {"padding_idx": 2, "scale_grad_by_freq": True},
        "functional padding": {},
    }[name]

    def look_up(table: nn.Embedding, ids: Tensor) -> Tensor:
        return F.embedding(ids, table.weight, padding_idx=2) if name == "functional padding" else table(ids)

    ids = torch.tensor([[2, 1, 1, 5], [0, 8, 2, 2], [3, 3, 3, 1]])
    assert_trains_like_torch(Embedded(look_up, **options).train(), ids=ids)


def test_spectral_norm_moves_its_vectors() -> None:
    torch.manual_seed(0)
    net = Net(lambda net, hidden: torch.tanh(hidden)).train()
    nn.utils.parametrizations.spectral_norm(net.second)
    before = [buffer.clone() for buffer in net.buffers()]
    model = assert_trains_like_torch(net, x=torch.randn(5, 6))
    moved = "second.parametrizations.weight.0"
    assert sorted(model.facts.training.updates.values()) == [f"{moved}._u", f"{moved}._v"]
    assert all(torch.equal(old, new) for old, new in zip(before, net.buffers(), strict=True))


def test_a_frozen_batch_norm_stays_frozen() -> None:
    torch.manual_seed(0)
    net = Net(lambda net, hidden: net.norm(hidden))
    net.norm = nn.BatchNorm1d(6)
    net.norm.running_mean.uniform_()
    net.train()
    net.norm.eval()
    model = assert_trains_like_torch(net, x=torch.randn(5, 6))
    assert not model.facts.training.updates
    assert net.training
    assert not net.norm.training


def test_the_modes_of_all_parts_are_put_back() -> None:
    net = Net(lambda net, hidden: hidden).eval()
    net.second.train()
    assert_trains_like_torch(net, x=torch.randn(5, 6))
    assert [part.training for part in net.modules()] == [False, False, True]


def test_what_is_not_linear_is_refused() -> None:
    with pytest.raises(ExportError, match=r"not linear in its incoming gradient at .*test_autograd.py:\d+"):
        export(
            Net(lambda net, hidden: Clipped.apply(hidden)),
            train=True,
            example_inputs={"x": torch.randn(5, 6)},
        )


def test_a_hook_on_a_tensor_is_refused() -> None:
    def hooked(net: Net, hidden: Tensor) -> Tensor:
        hidden.register_hook(lambda gradient: 2 * gradient)
        return hidden

    with pytest.raises(ExportError, match=r"hook is registered on a tensor at .*test_autograd.py:\d+"):
        export(Net(hooked), train=True, example_inputs={"x": torch.randn(5, 6)})


def test_a_backward_hook_on_a_module_is_refused() -> None:
    net = Net(lambda net, hidden: hidden)
    net.first.register_full_backward_hook(lambda module, inputs, outputs: None)
    with pytest.raises(ExportError, match=r"model.first has a backward hook \(.*test_autograd.py:\d+\)"):
        export(net, train=True, example_inputs={"x": torch.randn(5, 6)})
