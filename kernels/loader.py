"""Finds the native library and gives it to ONNX Runtime."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = [
    "KernelsMissing",
    "available",
    "declarations",
    "instruction_set",
    "library_path",
    "multiplies_bf16",
    "native",
    "register",
    "require",
    "scratch_bytes",
]

_FILE_NAMES = ("libfuseline_kernels.so", "libfuseline_kernels.dylib", "fuseline_kernels.dll")
_MISSING = (
    "the native operators (libfuseline_kernels) are not built: install fuseline with a C++ compiler present "
    "and FUSELINE_NO_KERNELS unset (pip install --no-build-isolation -e .), or train with kernels off"
)


class KernelsMissing(RuntimeError):
    """The native library was asked for and is not there."""

    def __init__(self) -> None:
        super().__init__(_MISSING)


def library_path() -> Path | None:
    """Where the library is; FUSELINE_KERNELS names another file, and ``off`` hides it."""
    chosen = os.environ.get("FUSELINE_KERNELS", "")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen) if Path(chosen).is_file() else None
    return _installed()


@cache
def _installed() -> Path | None:
    # An editable install spreads the package over two folders, the sources and the built files;
    # the traversable joins them, and only iterating it looks into both.
    found = {item.name: item for item in resources.files("fuseline.kernels").iterdir()}
    for name in _FILE_NAMES:
        if name in found:
            return Path(str(found[name])).resolve()
    return None


def available() -> bool:
    return library_path() is not None


def require() -> Path:
    """The library's path, or KernelsMissing saying what to do."""
    path = library_path()
    if path is None:
        raise KernelsMissing
    return path


def register(session_options: Any) -> None:
    """Makes the operators known to the sessions created with these ``onnxruntime.SessionOptions``."""
    session_options.register_custom_ops_library(str(require()))


@cache
def _load(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def native() -> ctypes.CDLL:
    """The library itself, for its plain C entry points."""
    return _load(require())


def instruction_set() -> str:
    """What the kernels use here: ``portable``, ``avx2``, ``avx512`` or ``avx512bf16``."""
    query = native().fuseline_isa
    query.restype = ctypes.c_char_p
    return bytes(query()).decode()


def multiplies_bf16() -> bool:
    """Whether the operators are there and this processor has an instruction for products of bf16."""
    return available() and instruction_set() == "avx512bf16"


def declarations() -> str:
    """What the library registers: a line per operator, port and attribute."""
    query = native().fuseline_operators
    query.restype = ctypes.c_char_p
    return bytes(query()).decode()


def scratch_bytes() -> int:
    """What the threads of this process hold as scratch memory of the operators, in bytes."""
    query = native().fuseline_scratch_bytes
    query.restype = ctypes.c_int64
    return int(query())
