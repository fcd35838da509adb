"""Pooling from operators whose gradients are right, whatever the size of the image and its padding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fuseline.exporters.swapping import swapped

__all__ = ["plain_average_pool", "plain_max_pool"]


@contextmanager
def plain_max_pool() -> Iterator[None]:
    """Max pooling as the largest of shifted images, where height or width is free.

    ONNX Runtime's gradient of MaxPool reads the image size from the graph and crashes where it is symbolic.
    """
    original = F.max_pool2d

    def max_pool2d(
        image: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **more: Any
    ) -> Any:
        usual = all(isinstance(size, int) for size in image.shape[-2:]) or any(rest) or _unusual(more)
        if usual:
            return original(image, kernel_size, stride, padding, *rest, **more)
        return _largest(image, _pair(kernel_size), _pair(stride or kernel_size), _pair(padding))

    with swapped(F, "max_pool2d", max_pool2d):
        yield


@contextmanager
def plain_average_pool() -> Iterator[None]:
    """Padded average pooling with its padding as an operator of its own.

    ONNX Runtime's gradient of AveragePool spreads what belongs to the padding over the image.
    """
    original = F.avg_pool2d

    def avg_pool2d(
        image: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        down, across = _pair(padding)
        if (down, across) == (0, 0) or ceil_mode or divisor_override is not None:
            return original(
                image, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
            )
        border = (across, across, down, down)
        pooled: Tensor = original(F.pad(image, border), kernel_size, stride)
        if count_include_pad:
            return pooled
        inside = torch.ones_like(image[:1, :1])
        return pooled / original(F.pad(inside, border), kernel_size, stride)

    with swapped(F, "avg_pool2d", avg_pool2d):
        yield


def _unusual(options: dict[str, Any]) -> bool:
    dilated = _pair(options.get("dilation", 1)) != (1, 1)
    return dilated or bool(options.get("ceil_mode")) or bool(options.get("return_indices"))


def _largest(
    image: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    down, across = padding
    lowest = torch.finfo(image.dtype).min
    padded = F.pad(image, (across, across, down, down), value=lowest) if any(padding) else image
    best: Tensor | None = None
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = _window(padded.shape[-2], i, kernel[0], stride[0])
            columns = _window(padded.shape[-1], j, kernel[1], stride[1])
            shifted = padded[..., rows, columns]
            best = shifted if best is None else torch.where(shifted > best, shifted, best)
    assert best is not None
    return best


def _window(size: Any, offset: int, kernel: int, stride: int) -> slice:
    """Where the element at `offset` of every window lies."""
    count = (size - kernel) // stride + 1
    return slice(offset, offset + (count - 1) * stride + 1, stride)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
