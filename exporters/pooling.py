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
    """Average pooling as the mean of shifted images: ONNX Runtime's gradient of AveragePool has no shape."""
    original, adaptive = F.avg_pool2d, F.adaptive_avg_pool2d

    def avg_pool2d(
        image: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if ceil_mode:
            return original(
                image, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
            )
        sizes = (_pair(kernel_size), _pair(stride or kernel_size), _pair(padding))
        total = _total(image, *sizes)
        if count_include_pad or divisor_override is not None:
            return total / (divisor_override or sizes[0][0] * sizes[0][1])
        return total / _total(torch.ones_like(image[..., :1, :, :]), *sizes)

    def adaptive_avg_pool2d(image: Tensor, output_size: Any) -> Tensor:
        wanted = _pair(output_size)
        before = image.shape[-2:]
        if not all(
            isinstance(n, int) and isinstance(m, int) and n % m == 0
            for n, m in zip(before, wanted, strict=True)
        ):
            return adaptive(image, output_size)
        return avg_pool2d(image, (before[0] // wanted[0], before[1] // wanted[1]))

    def avg_pool1d(
        signal: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Tensor:
        kernel, step, border = (
            v if isinstance(v, int) or v is None else v[0] for v in (kernel_size, stride, padding)
        )
        flat = avg_pool2d(
            signal.unsqueeze(-2), (1, kernel), (1, step or kernel), (0, border), ceil_mode, count_include_pad
        )
        return flat.squeeze(-2)

    with (
        swapped(F, "avg_pool2d", avg_pool2d),
        swapped(F, "adaptive_avg_pool2d", adaptive_avg_pool2d),
        swapped(F, "avg_pool1d", avg_pool1d),
    ):
        yield


def _total(
    image: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    first, *others = _shifted(image, kernel, stride, padding, outside=0.0)
    for shifted in others:
        first = first + shifted
    return first


def _unusual(options: dict[str, Any]) -> bool:
    dilated = _pair(options.get("dilation", 1)) != (1, 1)
    return dilated or bool(options.get("ceil_mode")) or bool(options.get("return_indices"))


def _largest(
    image: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    first, *others = _shifted(image, kernel, stride, padding, outside=torch.finfo(image.dtype).min)
    best = first
    for shifted in others:
        best = torch.where(shifted > best, shifted, best)
    return best


def _shifted(
    image: Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    *,
    outside: float,
) -> Iterator[Tensor]:
    """For each place of a window, the image of what lies there in all windows."""
    down, across = padding
    padded = F.pad(image, (across, across, down, down), value=outside) if any(padding) else image
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = _window(padded.shape[-2], i, kernel[0], stride[0])
            columns = _window(padded.shape[-1], j, kernel[1], stride[1])
            yield padded[..., rows, columns]


def _window(size: Any, offset: int, kernel: int, stride: int) -> slice:
    """Where the element at `offset` of every window lies."""
    count = (size - kernel) // stride + 1
    return slice(offset, offset + (count - 1) * stride + 1, stride)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
