"""Plain torch modules that stand for what people write: each with its example inputs and a scalar loss.

    module, inputs = build("lstm")      # module(**inputs) is the loss

Small sizes, random weights; together they cover the layers, activations, poolings and losses of `torch.nn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["MODULES", "build"]

Compute = Callable[[nn.ModuleDict, Tensor], Tensor]


@dataclass(frozen=True)
class Plain:
    """Layers by name, what is computed with them from x, and how x looks."""

    layers: Callable[[], dict[str, nn.Module]]
    compute: Compute
    example: Callable[[], Tensor]


class PlainModule(nn.Module):
    """A module whose forward is its loss: a target is made from the input, so that every row has its own."""

    def __init__(self, plain: Plain) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(plain.layers())
        self.compute = plain.compute

    def forward(self, x: Tensor) -> Tensor:
        result = self.compute(self.layers, x)
        weight = torch.cos(torch.arange(result[0].numel(), dtype=torch.float32)).reshape(result[0].shape)
        return (result * weight).mean() + 0.1 * (result * result).mean()


def build(name: str, seed: int = 0) -> tuple[nn.Module, dict[str, Tensor]]:
    """The module of this name in training mode, and its example inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        plain = MODULES[name]
        return PlainModule(plain).train(), {"x": plain.example()}


def _rows(width: int = 6) -> Callable[[], Tensor]:
    return lambda: torch.randn(5, width)


def _sequence(length: int = 7, width: int = 6) -> Callable[[], Tensor]:
    return lambda: torch.randn(5, length, width)


def _image(channels: int = 4, size: int = 8) -> Callable[[], Tensor]:
    return lambda: torch.randn(5, channels, size, size)


def _signal(channels: int = 4, length: int = 12) -> Callable[[], Tensor]:
    return lambda: torch.randn(5, channels, length)


def _ids(rows: int = 20, length: int = 7) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, rows, (5, length))


def _between(make: Callable[[], nn.Module], width: int = 6) -> Plain:
    """A layer over rows, between two linear ones."""
    return Plain(
        lambda: {"first": nn.Linear(width, width), "layer": make(), "last": nn.Linear(width, 3)},
        lambda m, x: m["last"](m["layer"](m["first"](x))),
        _rows(width),
    )


def _activated(function: Callable[[Tensor], Tensor]) -> Plain:
    """A function between two linear layers."""
    return Plain(
        lambda: {"first": nn.Linear(6, 6), "last": nn.Linear(6, 3)},
        lambda m, x: m["last"](function(m["first"](x))),
        _rows(),
    )


def _on_images(make: Callable[[], nn.Module]) -> Plain:
    """A layer over images, behind a convolution."""
    return Plain(
        lambda: {"first": nn.Conv2d(4, 6, 3, padding=1), "layer": make()},
        lambda m, x: m["layer"](m["first"](x)).flatten(2).mean(2),
        _image(),
    )


def _resized(**options: Any) -> Plain:
    return Plain(
        lambda: {"first": nn.Conv2d(4, 6, 3, padding=1), "last": nn.Conv2d(6, 3, 1)},
        lambda m, x: m["last"](F.interpolate(m["first"](x), **options)),
        _image(),
    )


def _recurrent(make: Callable[..., nn.Module], **options: Any) -> Plain:
    width = 5 * (2 if options.get("bidirectional") else 1)
    return Plain(
        lambda: {"cell": make(6, 5, batch_first=True, **options), "last": nn.Linear(width, 3)},
        lambda m, x: m["last"](m["cell"](x)[0]),
        _sequence(),
    )


def _attention(m: nn.ModuleDict, x: Tensor) -> Tensor:
    hidden = m["first"](x)
    attended: Tensor = m["attention"](hidden, hidden, hidden, need_weights=False)[0]
    return attended


def _transformer(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1)


def _noisy(m: nn.ModuleDict, x: Tensor) -> Tensor:
    hidden = m["first"](x)
    noisy: Tensor = m["last"](hidden + 0.1 * torch.randn_like(hidden))
    return noisy


def _spectrum(m: nn.ModuleDict, x: Tensor) -> Tensor:
    spectrum: Tensor = torch.fft.fft(m["first"](x), dim=1)
    return spectrum.real


def _rotary(m: nn.ModuleDict, x: Tensor) -> Tensor:
    hidden = m["first"](x)
    pairs = torch.view_as_complex(hidden.float().reshape(*hidden.shape[:-1], -1, 2))
    angles = torch.arange(hidden.shape[1])[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(2)


MODULES: dict[str, Plain] = {
    "linear": _between(nn.Identity),
    "bilinear": Plain(
        lambda: {"first": nn.Linear(6, 6), "layer": nn.Bilinear(6, 6, 3)},
        lambda m, x: m["layer"](m["first"](x), x),
        _rows(),
    ),
    "conv1d": Plain(lambda: {"c": nn.Conv1d(4, 6, 3, groups=2)}, lambda m, x: m["c"](x), _signal()),
    "conv2d": _on_images(lambda: nn.Conv2d(6, 4, 3, stride=2, dilation=2, padding=2)),
    "conv3d": Plain(
        lambda: {"c": nn.Conv3d(2, 4, 3, padding=1)},
        lambda m, x: m["c"](x),
        lambda: torch.randn(5, 2, 4, 6, 6),
    ),
    "conv-transpose1d": Plain(
        lambda: {"a": nn.Conv1d(4, 6, 3), "b": nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1)},
        lambda m, x: m["b"](m["a"](x)),
        _signal(),
    ),
    "conv-transpose2d": _on_images(lambda: nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1)),
    "conv-transpose-grouped": _on_images(
        lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, groups=2, dilation=2)
    ),
    "lstm": _recurrent(nn.LSTM, num_layers=2),
    "lstm-bidirectional": _recurrent(nn.LSTM, bidirectional=True),
    "lstm-projected": Plain(
        lambda: {"cell": nn.LSTM(6, 5, batch_first=True, proj_size=4), "last": nn.Linear(4, 3)},
        lambda m, x: m["last"](m["cell"](x)[0]),
        _sequence(),
    ),
    "gru": _recurrent(nn.GRU, num_layers=2),
    "gru-bidirectional": _recurrent(nn.GRU, bidirectional=True),
    "rnn": _recurrent(nn.RNN),
    "rnn-relu": _recurrent(nn.RNN, nonlinearity="relu"),
    "lstm-cell": Plain(
        lambda: {"cell": nn.LSTMCell(6, 5), "last": nn.Linear(5, 3)},
        lambda m, x: m["last"](m["cell"](x)[0]),
        _rows(),
    ),
    "multihead-attention": Plain(
        lambda: {"first": nn.Linear(6, 8), "attention": nn.MultiheadAttention(8, 2, batch_first=True)},
        _attention,
        _sequence(),
    ),
    "multihead-attention-dropout": Plain(
        lambda: {"first": nn.Linear(6, 8), "attention": nn.MultiheadAttention(8, 2, 0.2, batch_first=True)},
        _attention,
        _sequence(),
    ),
    "transformer-encoder": Plain(
        lambda: {"first": nn.Linear(6, 8), "t": _transformer(0.0)},
        lambda m, x: m["t"](m["first"](x)),
        _sequence(),
    ),
    "transformer-encoder-dropout": Plain(
        lambda: {"first": nn.Linear(6, 8), "t": _transformer(0.1)},
        lambda m, x: m["t"](m["first"](x)),
        _sequence(),
    ),
    "transformer-decoder": Plain(
        lambda: {"first": nn.Linear(6, 8), "t": _decoder()},
        lambda m, x: m["t"](m["first"](x), m["first"](x).flip(1)),
        _sequence(),
    ),
    "embedding": Plain(lambda: {"e": nn.Embedding(20, 6)}, lambda m, x: m["e"](x), _ids()),
    "embedding-padding": Plain(
        lambda: {"e": nn.Embedding(20, 6, padding_idx=3)}, lambda m, x: m["e"](x), _ids()
    ),
    "embedding-frequency": Plain(
        lambda: {"e": nn.Embedding(20, 6, scale_grad_by_freq=True)}, lambda m, x: m["e"](x), _ids()
    ),
    "embedding-bag-mean": Plain(lambda: {"e": nn.EmbeddingBag(20, 6)}, lambda m, x: m["e"](x), _ids()),
    "embedding-bag-sum": Plain(
        lambda: {"e": nn.EmbeddingBag(20, 6, mode="sum")}, lambda m, x: m["e"](x), _ids()
    ),
    "embedding-bag-max": Plain(
        lambda: {"e": nn.EmbeddingBag(20, 6, mode="max")}, lambda m, x: m["e"](x), _ids()
    ),
    "batch-norm1d": _between(lambda: nn.BatchNorm1d(6)),
    "batch-norm2d": _on_images(lambda: nn.BatchNorm2d(6)),
    "layer-norm": _between(lambda: nn.LayerNorm(6)),
    "rms-norm": _between(lambda: nn.RMSNorm(6)),
    "group-norm": _on_images(lambda: nn.GroupNorm(3, 6)),
    "instance-norm": _on_images(lambda: nn.InstanceNorm2d(6, affine=True)),
    "local-response-norm": _on_images(lambda: nn.LocalResponseNorm(3)),
    "spectral-norm": _between(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))),
    "weight-norm": _between(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))),
    "relu6": _between(nn.ReLU6),
    "prelu": _between(lambda: nn.PReLU(6)),
    "mish": _between(nn.Mish),
    "silu": _between(nn.SiLU),
    "elu": _between(nn.ELU),
    "hardswish": _between(nn.Hardswish),
    "softplus": _between(nn.Softplus),
    "glu": Plain(
        lambda: {"first": nn.Linear(6, 8), "last": nn.Linear(4, 3)},
        lambda m, x: m["last"](F.glu(m["first"](x))),
        _rows(),
    ),
    "log-softmax": _activated(lambda h: F.log_softmax(h, dim=-1)),
    "normalize": _activated(lambda h: F.normalize(h, dim=-1)),
    "average-pool": _on_images(lambda: nn.AvgPool2d(3, stride=2, padding=1)),
    "average-pool-inside": _on_images(lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)),
    "max-pool": _on_images(lambda: nn.MaxPool2d(3, stride=2, padding=1)),
    "adaptive-average-pool": _on_images(lambda: nn.AdaptiveAvgPool2d(2)),
    "resize-nearest": _resized(scale_factor=2),
    "resize-bilinear": _resized(scale_factor=2, mode="bilinear"),
    "resize-bilinear-corners": _resized(size=(13, 11), mode="bilinear", align_corners=True),
    "resize-bicubic": _resized(scale_factor=2, mode="bicubic"),
    "pixel-shuffle": Plain(
        lambda: {"first": nn.Conv2d(4, 8, 3), "s": nn.PixelShuffle(2)},
        lambda m, x: m["s"](m["first"](x)),
        _image(),
    ),
    "einsum-three": Plain(
        lambda: {"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)},
        lambda m, x: torch.einsum("bi,bj,ij->bij", m["a"](x), m["b"](x), m["a"].weight),
        _rows(),
    ),
    "noise": Plain(lambda: {"first": nn.Linear(6, 6), "last": nn.Linear(6, 3)}, _noisy, _rows()),
    "fourier": Plain(lambda: {"first": nn.Linear(6, 4)}, _spectrum, _sequence()),
    "complex-rotary": Plain(lambda: {"first": nn.Linear(6, 8)}, _rotary, _sequence()),
    "integers-and-floats": Plain(
        lambda: {"e": nn.Embedding(20, 6)}, lambda m, x: m["e"](x) * (x * 0.5 + 1)[..., None], _ids()
    ),
    "moved-to-type": _activated(lambda h: h.to(torch.float64).cumsum(-1).to(h.device).to(torch.float32)),
}
