"""torch's own translations to ONNX, read once in a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from torch.onnx._internal.exporter import _registration

from fuseline.exporters.swapping import swapped

__all__ = ["remembered_translations"]

_made = _registration.ONNXRegistry.from_torchlib


@contextmanager
def remembered_translations() -> Iterator[None]:
    """`torch.onnx.export` parses the source of 500 translations at every call: half of a small export."""
    with swapped(_registration.ONNXRegistry, "from_torchlib", staticmethod(_copied)):
        yield


def _copied(opset_version: int) -> _registration.ONNXRegistry:
    """A registry of its own for each export, because translations of ours are put in front."""
    known = _remembered(opset_version)
    registry = _registration.ONNXRegistry()
    registry._opset_version = known.opset_version
    registry.functions = {target: list(forms) for target, forms in known.functions.items()}
    return registry


@cache
def _remembered(opset_version: int) -> _registration.ONNXRegistry:
    return _made(opset_version=opset_version)
