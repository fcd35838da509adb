"""Output shapes of convolution and pooling over spaces of symbolic size."""

from __future__ import annotations

from collections.abc import Sequence

from fuseline.engine.shapes import dims
from fuseline.engine.shapes.dims import Dim
from fuseline.engine.shapes.site import Site, Typing

__all__ = ["convolution", "global_pooling"]


def convolution(site: Site) -> list[Typing]:
    data, weight = site.dims(0), site.dims(1)
    if data is None or weight is None or len(data) < 3:
        return [(site.dtype(), None)]
    attributes, spatial = site.node.attributes, len(data) - 2
    kernel: Sequence[Dim] = attributes.get_ints("kernel_shape") or weight[2:]
    strides = attributes.get_ints("strides") or (1,) * spatial
    dilations = attributes.get_ints("dilations") or (1,) * spatial
    pads = attributes.get_ints("pads") or (0,) * (2 * spatial)
    automatic = attributes.get_string("auto_pad", "NOTSET")
    made: list[Dim] = []
    for axis in range(spatial):
        size, stride = data[axis + 2], strides[axis]
        if automatic.startswith("SAME"):
            made.append(_rounded_up(size, stride))
            continue
        padding = pads[axis] + pads[axis + spatial] if automatic == "NOTSET" else 0
        made.append(_covered(size, kernel[axis], stride, dilations[axis], padding))
    return [(site.dtype(), (data[0], weight[0], *made))]


def _covered(size: Dim, kernel: Dim, stride: int, dilation: int, padding: int) -> Dim:
    if not isinstance(kernel, int):
        return None
    free = dims.add(size, padding - dilation * (kernel - 1) - 1)
    if isinstance(free, int):
        return free // stride + 1
    return dims.add(free, 1) if stride == 1 else None


def _rounded_up(size: Dim, stride: int) -> Dim:
    if isinstance(size, int):
        return -(-size // stride)
    return size if stride == 1 else None


def global_pooling(site: Site) -> list[Typing]:
    data = site.dims()
    return [(site.dtype(), (*data[:2], *(1,) * (len(data) - 2)) if data is not None else None)]
