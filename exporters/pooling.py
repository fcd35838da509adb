"""Average pooling as ONNX Runtime counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fuseline.exporters.swapping import swapped

__all__ = ["counted_average_pool"]


@contextmanager
def counted_average_pool() -> Iterator[None]:
    """Average pooling whose last windows reach beyond the padding, with the padding as part of the image.

    torch divides by what of a window lies inside, ONNX Runtime by all of it where padding counts.
    """
    with ExitStack() as stack:
        for axes in (1, 2, 3):
            name = f"avg_pool{axes}d"
            stack.enter_context(swapped(F, name, _counted(getattr(F, name), axes)))
        yield


def _counted(original: Callable[..., Tensor], axes: int) -> Callable[..., Tensor]:
    def pool(
        image: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        rest = () if axes == 1 else (divisor_override,)
        if not (ceil_mode and count_include_pad) or divisor_override is not None:
            return original(image, kernel_size, stride, padding, ceil_mode, count_include_pad, *rest)
        kernel, borders = _each(kernel_size, axes), _each(padding, axes)
        strides = _each(stride, axes) if stride is not None else kernel
        sides = [border for border in reversed(borders) for _ in range(2)]
        padded = F.pad(image, sides) if any(borders) else image
        found = original(padded, kernel, strides, 0, True, False, *rest)
        for axis, (border, step) in enumerate(zip(borders, strides, strict=True), -axes):
            # A window that begins in the padding at the end is none.
            if border:
                begins = (image.shape[axis] + border + step - 1) // step
                found = found.narrow(axis, 0, torch.sym_min(found.shape[axis], begins))  # type: ignore[no-untyped-call]
        return found

    return pool


def _each(value: Any, axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values
