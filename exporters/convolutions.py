"""Transposed convolutions as convolutions, whose gradient ONNX Runtime has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from fuseline.exporters.swapping import swapped

__all__ = ["plain_transposed_convolution"]


@contextmanager
def plain_transposed_convolution() -> Iterator[None]:
    """`F.conv_transpose1d` to 3d: zeros between the inputs, then a convolution with turned kernels."""
    with ExitStack() as stack:
        for axes, convolve in ((1, F.conv1d), (2, F.conv2d), (3, F.conv3d)):
            stack.enter_context(swapped(F, f"conv_transpose{axes}d", _transposed(axes, convolve)))
        yield


def _transposed(axes: int, convolve: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def conv_transpose(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        strides, cuts, more, gaps = (_each(v, axes) for v in (stride, padding, output_padding, dilation))
        if x.dim() == axes + 1:
            return conv_transpose(x[None], weight, bias, strides, cuts, more, groups, gaps).squeeze(0)
        for axis in range(axes):
            x = _spread(x, axis + 2, strides[axis])
        borders: list[int] = []
        for axis in reversed(range(axes)):
            reach = gaps[axis] * (weight.shape[axis + 2] - 1) - cuts[axis]
            borders += [reach, reach + more[axis]]
        return convolve(F.pad(x, borders), _turned(weight, groups, axes), bias, dilation=gaps, groups=groups)

    return conv_transpose


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes if len(value) == 1 else 1)


def _spread(x: Tensor, axis: int, stride: int) -> Tensor:
    """Zeros between the elements along an axis, none behind the last."""
    if stride == 1:
        return x
    behind = x.dim() - axis - 1
    apart = F.pad(x.unsqueeze(axis + 1), (0, 0) * behind + (0, stride - 1))
    length = (x.shape[axis] - 1) * stride + 1
    return apart.flatten(axis, axis + 1).narrow(axis, 0, length)


def _turned(weight: Tensor, groups: int, axes: int) -> Tensor:
    """[in, out/groups, …] as [out, in/groups, …], every kernel turned round."""
    entering, leaving = weight.shape[:2]
    parts = weight.reshape(groups, entering // groups, leaving, *weight.shape[2:]).transpose(1, 2)
    whole = parts.reshape(groups * leaving, entering // groups, *weight.shape[2:])
    return whole.flip(list(range(2, 2 + axes)))
