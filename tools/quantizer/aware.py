"""Training-aware quantization: linear layers that compute on the grid they will be deployed on.

The layers are ordinary torch modules with two parameters more, so that every optimizer, checkpoint and export
sees them: the graph gets the rounding as standard operators, `fake-quantize` gives it its gradient, and
`convert-fake-quantize` turns the trained graph into an integer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError

__all__ = ["GridLinear", "make_aware"]


class GridLinear(nn.Linear):
    """A linear layer whose input has one learned scale, and whose weight has one for each output.

    What is learned are their logarithms: a scale stays positive, and a step of the optimizer changes it by a
    part of itself, however small it is.
    """

    input_log_scale: nn.Parameter
    weight_log_scale: nn.Parameter
    bits: int

    def forward(self, input: Tensor) -> Tensor:
        x = _on_grid(input, self.input_log_scale.exp(), self.bits)
        weight = _on_grid(self.weight, self.weight_log_scale.exp(), self.bits)
        return nn.functional.linear(x, weight, self.bias)


class _Grid(torch.autograd.Function):
    """Rounding that lets the gradient through where nothing is clipped, for training in torch."""

    @staticmethod
    def forward(ctx: Any, scaled: Tensor, least: float, most: float) -> Tensor:
        rounded = torch.round(scaled)
        # As FakeQuant has it: what rounds to an end of the grid is still inside.
        ctx.save_for_backward((rounded >= least) & (rounded <= most))
        return torch.clamp(rounded, least, most)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (inside,) = ctx.saved_tensors
        return gradients[0] * inside, None, None


def _on_grid(value: Tensor, scale: Tensor, bits: int) -> Tensor:
    least, most = -float(2 ** (bits - 1)), float(2 ** (bits - 1) - 1)
    if torch.compiler.is_exporting() or not torch.is_grad_enabled():
        return torch.clamp(torch.round(value / scale), least, most) * scale
    made: Tensor = _Grid.apply(value / scale, least, most) * scale  # type: ignore[no-untyped-call]
    return made


def make_aware(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    *,
    bits: int = 8,
    exclude: Iterable[str] = (),
) -> list[str]:
    """Put the model's linear layers on grids, scales from what they see on the batches; gives their names."""
    if not 2 <= bits <= 8:
        raise FuselineError(f"bits are 2 to 8, not {bits}")
    patterns = tuple(exclude)
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not any(fnmatchcase(name, p) for p in patterns)
    }
    if not layers:
        raise FuselineError("the model has no linear layer to quantize")
    seen = _largest_inputs(model, layers, batches)
    most = 2 ** (bits - 1) - 1
    for name, layer in layers.items():
        layer.__class__ = GridLinear
        layer.bits = bits  # type: ignore[assignment]
        largest = layer.weight.detach().abs().amax(dim=1, keepdim=True).clamp_min(1e-8)
        layer.weight_log_scale = nn.Parameter((largest / most).log())
        layer.input_log_scale = nn.Parameter(torch.tensor(max(seen[name], 1e-8) / most).log())
    return list(layers)


def _largest_inputs(
    model: nn.Module, layers: Mapping[str, nn.Module], batches: Iterable[Mapping[str, Any]]
) -> dict[str, float]:
    seen = dict.fromkeys(layers, 0.0)

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[name] = max(seen[name], float(inputs[0].detach().abs().max()))

        return hook

    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    training = model.training
    model.eval()
    count = 0
    try:
        with torch.no_grad():
            for batch in batches:
                model(**batch)
                count += 1
    finally:
        for handle in handles:
            handle.remove()
        model.train(training)
    if not count:
        raise FuselineError("there are no batches to take the first scales from")
    return seen
