"""Layers that are written otherwise while they are traced for training compute what they computed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.engine.errors import FuselineError
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import ExportError, export, patches
from fuseline.tools.campaigns import plain_modules, zoo
from fuseline.tools.gradient_check import differentiated


def _recurrent(make: Callable[..., nn.Module], **options: Any) -> Callable[[Tensor], Tensor]:
    layer = make(6, 5, batch_first=True, **options)
    return lambda x: torch.cat([layer(x)[0].flatten(), *(part.flatten() for part in _ends(layer(x)[1]))])


def _ends(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


SEQUENCE, IMAGE, SIGNAL = (5, 7, 6), (3, 6, 8, 7), (3, 6, 9)
KERNEL = torch.randn(6, 2, 4, 3, generator=torch.Generator().manual_seed(0))
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "lstm": (SEQUENCE, _recurrent(nn.LSTM, num_layers=2, bidirectional=True)),
    "lstm projected": (SEQUENCE, _recurrent(nn.LSTM, proj_size=4, bias=False)),
    "gru": (SEQUENCE, _recurrent(nn.GRU, num_layers=2, bidirectional=True)),
    "rnn": (SEQUENCE, _recurrent(nn.RNN, nonlinearity="relu")),
    "transposed convolution": (
        IMAGE,
        lambda x: F.conv_transpose2d(
            x, KERNEL, stride=(2, 3), padding=1, output_padding=(1, 0), groups=3, dilation=(1, 2)
        ),
    ),
    "transposed convolution in 1-D": (
        SIGNAL,
        lambda x: F.conv_transpose1d(x, KERNEL[..., 0], torch.ones(2), stride=2, padding=2),
    ),
    "bilinear": (IMAGE, lambda x: F.interpolate(x, scale_factor=2.5, mode="bilinear")),
    "bilinear, corners": (
        IMAGE,
        lambda x: F.interpolate(x, size=(5, 13), mode="bilinear", align_corners=True),
    ),
    "bicubic": (IMAGE, lambda x: F.interpolate(x, size=(12, 5), mode="bicubic")),
    "nearest": (IMAGE, lambda x: F.interpolate(x, scale_factor=2) + F.interpolate(x, size=(16, 14))),
    "linear": (SIGNAL, lambda x: F.interpolate(x, scale_factor=0.5, mode="linear")),
    "average pool": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "average pool inside": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "average pool in 1-D": (SIGNAL, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "average pool beyond the end": (IMAGE, lambda x: F.avg_pool2d(x, (3, 2), 3, 1, ceil_mode=True)),
    "average pool beyond the end in 1-D": (SIGNAL, lambda x: F.avg_pool1d(x, 4, ceil_mode=True)),
    "average pool beyond the end in 3-D": (IMAGE, lambda x: F.avg_pool3d(x, 3, 3, 1, ceil_mode=True)),
    "adaptive average pool": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, (2, 7))),
    "einsum": (SIGNAL, lambda x: torch.einsum("bct, bdt, ce -> bde", x, x, KERNEL[:, 0, 0])),
    "flip": (IMAGE, lambda x: x.flip(-1).flip([0, 1]) + torch.flip(x, dims=(2,))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_result_and_gradient_stay(name: str) -> None:
    shape, compute = LAYERS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    model = nn.Identity().train()
    plain = _with_gradient(compute, x)
    with patches.traceable(model):
        traced = _with_gradient(compute, x)
    torch.testing.assert_close(traced, plain)


def _with_gradient(compute: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = compute(x)
    (gradient,) = torch.autograd.grad((y * torch.cos(torch.arange(y.numel())).reshape(y.shape)).sum(), x)
    return y.detach(), gradient


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_embedding_bag(mode: str) -> None:
    torch.manual_seed(0)
    weight = torch.randn(9, 4, requires_grad=True)
    ids = torch.tensor([[1, 2, 8], [3, 3, 0]])

    def run() -> tuple[Tensor, Tensor]:
        y = F.embedding_bag(ids, weight, mode=mode)
        return y.detach(), torch.autograd.grad((y * torch.arange(4.0)).sum(), weight)[0]

    expected = run()
    with patches.traceable(nn.Identity().train()):
        torch.testing.assert_close(run(), expected)


def test_layers_without_a_gradient_of_their_own_train_like_torch() -> None:
    for name in ("gru", "conv-transpose2d", "local-response-norm"):
        module, inputs = plain_modules.build(name)
        model = export(module, train=True, example_inputs=inputs)
        step = TrainingStep(differentiated(model), threads=1)
        step.run({"x": inputs["x"].numpy()})
        module(**inputs).backward()
        for parameter, tensor in module.named_parameters():
            np.testing.assert_allclose(step.gradients[parameter], tensor.grad, atol=2e-6)


@pytest.mark.parametrize("padding", [0, 1])
def test_an_average_beyond_the_end_is_exported_as_torch_computes_it(padding: int) -> None:
    layer = nn.AvgPool2d(3, 2, padding, ceil_mode=True)
    export(nn.Sequential(layer), example_inputs={"input": torch.randn(2, 3, 10, 8)})  # which compares


def test_layers_are_dropped_on_the_graph() -> None:
    """Every loss of the graph is that of torch with some layers left out, and each such choice occurs."""
    module = zoo.build("opt", layerdrop=0.5)
    batch = zoo.batch(module, 3, 7)
    step = TrainingStep(differentiated(export(module, train=True)), threads=1)
    feeds = {name: value.numpy() for name, value in batch.items()}
    drawn = [float(step.run(feeds, seed=seed)["loss"]) for seed in range(24)]
    layers, possible = list(module.model.decoder.layers), []
    for kept in ([], layers[:1], layers[1:], layers):
        module.model.decoder.layers = nn.ModuleList(kept)
        module.config.layerdrop = module.model.decoder.layerdrop = 0.0
        possible.append(float(module(**batch).loss))
    nearest = [int(np.argmin(np.abs(np.array(possible) - loss))) for loss in drawn]
    assert set(nearest) == {0, 1, 2, 3}
    np.testing.assert_allclose(drawn, [possible[i] for i in nearest], rtol=1e-5)


def test_a_negative_token_id_is_an_error_as_in_torch() -> None:
    module = zoo.build("gpt2")
    step = TrainingStep(differentiated(export(module, train=True, check=False)), threads=1)
    feeds = {name: value.numpy().copy() for name, value in zoo.batch(module, 2, 6).items()}
    feeds["input_ids"][0, 0] = -1
    with pytest.raises(FuselineError):
        step.run(feeds)


class Coins(nn.Module):
    """A coin for each layer, used in a way of one's own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.extra = nn.Linear(4, 4)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            low = self.training and self.way != "another module" and torch.rand([]) < 0.5
            if self.way in ("the layer", "another module") and not low:
                x = layer(x)
            if self.way == "a residual" and not low:
                x = x + layer(x)
            if self.way == "noise before it":
                x = layer(self.extra(x) if low else x)
        if self.way == "another module" and not (self.training and torch.rand([]) < 0.5):
            x = self.extra(x)
        return (x * x).sum()


@pytest.mark.parametrize("way", ["a residual", "noise before it", "another module"])
def test_coins_that_do_not_leave_a_layer_out_are_refused(way: str) -> None:
    with pytest.raises(ExportError, match="coin"):
        export(Coins(way), train=True, example_inputs={"x": torch.randn(3, 4)})


def test_coins_of_a_module_of_ones_own_leave_layers_out() -> None:
    module = Coins("the layer")
    x = torch.randn(3, 4)
    step = TrainingStep(differentiated(export(module, train=True, example_inputs={"x": x})), threads=1)
    drawn = {round(float(step.run({"x": x.numpy()}, seed=seed)["loss"]), 3) for seed in range(24)}
    one, two = module.layers
    kept = [x, one(x), two(x), two(one(x))]
    assert drawn == {round(float((y * y).sum()), 3) for y in kept}
