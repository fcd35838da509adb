"""ONNX operators as torch functions: an opinion on gradients that shares nothing with the other two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["OPERATORS", "Call"]

_TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


@dataclass(frozen=True)
class Call:
    """A node with the values of its inputs."""

    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any]
    outputs: int

    def __getitem__(self, index: int) -> Tensor:
        found = self.inputs[index]
        assert found is not None
        return found

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def numbers(self, index: int, name: str) -> list[int] | None:
        """Integers given as an input, or as an attribute."""
        if self.has(index):
            return [int(i) for i in self[index].reshape(-1).tolist()]
        return [int(i) for i in self.attributes[name]] if name in self.attributes else None


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[[Call], Tensor]:
    def operator(c: Call) -> Tensor:
        axes = c.numbers(1, "axes")
        if not axes and c.get("noop_with_empty_axes", 0):
            return c[0]
        return function(c[0], axes or list(range(c[0].dim())), bool(c.get("keepdims", 1)))

    return operator


def _reshape(c: Call) -> Tensor:
    target = c.numbers(1, "shape") or []
    if not c.get("allowzero", 0):
        target = [c[0].shape[i] if d == 0 else d for i, d in enumerate(target)]
    return c[0].reshape(target)


def _unsqueeze(c: Call) -> Tensor:
    axes = c.numbers(1, "axes") or []
    rank = c[0].dim() + len(axes)
    made = c[0]
    for axis in sorted(a % rank for a in axes):
        made = made.unsqueeze(axis)
    return made


def _squeeze(c: Call) -> Tensor:
    axes = c.numbers(1, "axes")
    return c[0].squeeze() if axes is None else c[0].squeeze(tuple(axes))


def _slice(c: Call) -> Tensor:
    starts, ends = c.numbers(1, "starts") or [], c.numbers(2, "ends") or []
    axes = c.numbers(3, "axes") or list(range(len(starts)))
    steps = c.numbers(4, "steps") or [1] * len(starts)
    made = c[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        taken = range(made.shape[axis])[
            slice(start, end if step > 0 or end >= -made.shape[axis] else None, step)
        ]
        made = made.index_select(axis % made.dim(), torch.tensor(list(taken), dtype=torch.int64))
    return made


def _split(c: Call) -> tuple[Tensor, ...]:
    axis = c.get("axis", 0)
    sizes = c.numbers(1, "split")
    if sizes is None:
        size = -(-c[0].shape[axis] // c.outputs)
        sizes = [size] * (c.outputs - 1) + [c[0].shape[axis] - size * (c.outputs - 1)]
    return torch.split(c[0], sizes, axis)


def _gather(c: Call) -> Tensor:
    axis = c.get("axis", 0) % c[0].dim()
    indices = c[1].to(torch.int64) % c[0].shape[axis]
    flat = c[0].index_select(axis, indices.reshape(-1))
    return flat.reshape([*c[0].shape[:axis], *indices.shape, *c[0].shape[axis + 1 :]])


def _gemm(c: Call) -> Tensor:
    a = c[0].T if c.get("transA", 0) else c[0]
    b = c[1].T if c.get("transB", 0) else c[1]
    alpha, beta = float(c.get("alpha", 1.0)), float(c.get("beta", 1.0))
    made = (a @ b) * alpha
    return made + c[2] * beta if c.has(2) else made


def _layer_norm(c: Call) -> Tensor:
    axis = c.get("axis", -1) % c[0].dim()
    shape = list(c[0].shape[axis:])
    bias = c[2].expand(shape) if c.has(2) else None
    return F.layer_norm(c[0], shape, c[1].expand(shape), bias, c.get("epsilon", 1e-5))


def _trilu(c: Call) -> Tensor:
    diagonal = int(c[1]) if c.has(1) else 0
    return torch.triu(c[0], diagonal) if c.get("upper", 1) else torch.tril(c[0], diagonal)


def _cross_entropy(c: Call) -> Tensor:
    how = c.get("reduction", b"mean").decode()
    weight = c[2] if c.has(2) else None
    ignored = c.get("ignore_index", -100)
    return F.cross_entropy(c[0], c[1].to(torch.int64), weight, ignore_index=ignored, reduction=how)


def _clip(c: Call) -> Tensor:
    low, high = (c[i] if c.has(i) else None for i in (1, 2))
    made = c[0]
    made = torch.maximum(made, low) if low is not None else made
    return torch.minimum(made, high) if high is not None else made


def _shape(c: Call) -> Tensor:
    shape = list(c[0].shape)
    return torch.tensor(shape[c.get("start", 0) : c.get("end", len(shape))], dtype=torch.int64)


def _divide(c: Call) -> Tensor:
    exact = c[0].is_floating_point()
    return c[0] / c[1] if exact else torch.div(c[0], c[1], rounding_mode="trunc")


def _concat(c: Call) -> Tensor:
    return torch.cat([c[i] for i in range(len(c.inputs))], c.get("axis", 0))


def _gelu(c: Call) -> Tensor:
    return F.gelu(c[0], approximate=c.get("approximate", b"none").decode())


def _same_pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: list[int], dilations: list[int], *, upper: bool
) -> list[int]:
    """As many as keep size / stride positions; of an odd number the larger half is at the end if `upper`."""
    places = zip(sizes, kernel, strides, dilations, strict=True)
    totals = [(-(-n // s) - 1) * s + (k - 1) * d + 1 - n for n, k, s, d in places]
    if min(totals) < 0:
        raise ValueError("ONNX Runtime takes other positions than ONNX says where strides leave some out")
    begins = [t // 2 if upper else t - t // 2 for t in totals]
    return begins + [t - b for t, b in zip(totals, begins, strict=True)]


def _conv(c: Call) -> Tensor:
    spatial = c[0].dim() - 2
    strides, dilations = c.get("strides", [1] * spatial), c.get("dilations", [1] * spatial)
    automatic = c.get("auto_pad", b"NOTSET").decode()
    if automatic.startswith("SAME"):
        pads = _same_pads(c[0].shape[2:], c[1].shape[2:], strides, dilations, upper=automatic == "SAME_UPPER")
    else:
        pads = c.get("pads", [0] * 2 * spatial)
    padded = F.pad(c[0], [p for i in reversed(range(spatial)) for p in (pads[i], pads[i + spatial])])
    function: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    bias = c[2] if c.has(2) else None
    return function(padded, c[1], bias, strides, 0, dilations, c.get("group", 1))


OPERATORS: dict[str, Callable[[Call], Tensor | tuple[Tensor, ...]]] = {
    "Add": lambda c: c[0] + c[1],
    "Sub": lambda c: c[0] - c[1],
    "Mul": lambda c: c[0] * c[1],
    "Div": _divide,
    "Pow": lambda c: torch.pow(c[0], c[1].to(c[0].dtype)),
    "MatMul": lambda c: c[0] @ c[1],
    "Gemm": _gemm,
    "Conv": _conv,
    "Abs": lambda c: c[0].abs(),
    "Neg": lambda c: -c[0],
    "Exp": lambda c: c[0].exp(),
    "Log": lambda c: c[0].log(),
    "Sqrt": lambda c: c[0].sqrt(),
    "Reciprocal": lambda c: c[0].reciprocal(),
    "Sin": lambda c: c[0].sin(),
    "Cos": lambda c: c[0].cos(),
    "Erf": lambda c: c[0].erf(),
    "Tanh": lambda c: c[0].tanh(),
    "Sigmoid": lambda c: c[0].sigmoid(),
    "Relu": lambda c: c[0].relu(),
    "LeakyRelu": lambda c: F.leaky_relu(c[0], c.get("alpha", 0.01)),
    "Elu": lambda c: F.elu(c[0], c.get("alpha", 1.0)),
    "Softplus": lambda c: F.softplus(c[0]),
    "Softsign": lambda c: F.softsign(c[0]),
    "HardSigmoid": lambda c: (c.get("alpha", 0.2) * c[0] + c.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": lambda c: F.hardswish(c[0]),
    "Mish": lambda c: F.mish(c[0]),
    "Gelu": _gelu,
    "Softmax": lambda c: c[0].softmax(c.get("axis", -1)),
    "LogSoftmax": lambda c: c[0].log_softmax(c.get("axis", -1)),
    "LayerNormalization": _layer_norm,
    "ReduceSum": _reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceMean": _reduction(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceMax": _reduction(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMin": _reduction(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "ReduceL2": _reduction(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt()),
    "ReduceL1": _reduction(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "ReduceSumSquare": _reduction(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
    "ReduceLogSumExp": _reduction(lambda x, axes, keep: x.logsumexp(axes, keepdim=keep)),
    "Identity": lambda c: c[0],
    "Cast": lambda c: c[0].to(_TYPES[c.attributes["to"]]),
    "Not": lambda c: ~c[0],
    "Where": lambda c: torch.where(c[0], c[1], c[2]),
    "Greater": lambda c: c[0] > c[1],
    "Less": lambda c: c[0] < c[1],
    "Equal": lambda c: c[0] == c[1],
    "Max": lambda c: torch.maximum(c[0], c[1]),
    "Min": lambda c: torch.minimum(c[0], c[1]),
    "Sum": lambda c: sum((c[i] for i in range(1, len(c.inputs))), c[0]),
    "Clip": _clip,
    "Reshape": _reshape,
    "Transpose": lambda c: c[0].permute(c.get("perm", list(range(c[0].dim()))[::-1])),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Flatten": lambda c: c[0].reshape(c[0].shape[: c.get("axis", 1) % (c[0].dim() + 1)].numel(), -1),
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Expand": lambda c: c[0] * torch.ones([int(i) for i in c[1].tolist()], dtype=c[0].dtype),
    "Shape": _shape,
    "Size": lambda c: torch.tensor(c[0].numel()),
    "Trilu": _trilu,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
