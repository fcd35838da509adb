"""A user's inputs: an .npz file with one array per input, checked against the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.files import atomic_write
from fuseline.engine.inputs.interface import Input, interface
from fuseline.engine.model import Model

__all__ = ["check_inputs", "load_npz", "save_npz"]

Array = npt.NDArray[Any]


def load_npz(path: str | Path, model: Model) -> dict[str, Array]:
    """Read inputs and check names, types and shapes against the model's interface."""
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise ModelError(f"there is no file {path}") from None
    except Exception as error:  # numpy, zipfile and zlib raise a dozen unrelated types
        raise ModelError(
            f"{path} is not an .npz archive of arrays: {error or type(error).__name__}",
            hint="write it with numpy.savez(path, **inputs)",
        ) from error
    check_inputs(arrays, model, source=str(path))
    return arrays


def save_npz(path: str | Path, inputs: Mapping[str, Array]) -> None:
    path = Path(path)
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **{k: np.asarray(v) for k, v in inputs.items()})  # type: ignore[arg-type]


def check_inputs(arrays: Mapping[str, Array], model: Model, *, source: str) -> None:
    """Raise a ModelError on the first array that does not fit the model."""
    wanted = {i.name: i for i in interface(model)}
    for name in arrays:
        if name not in wanted:
            hint = did_you_mean(name, wanted) or f"its inputs are {', '.join(wanted)}"
            raise ModelError(f"{source}: the model has no input {name!r}", hint=hint)
    sizes: dict[str, tuple[int, str]] = {}
    for name, declared in wanted.items():
        if name not in arrays:
            raise ModelError(f"{source}: the array for input {name!r} is missing")
        _check_one(arrays[name], declared, sizes, source)


def _check_one(array: Array, declared: Input, sizes: dict[str, tuple[int, str]], source: str) -> None:
    label = f"{source}: input {declared.name!r}"
    expected = declared.dtype.numpy()
    if array.dtype != expected and not (expected.kind == "O" and array.dtype.kind in "US"):
        raise ModelError(f"{label} is {array.dtype}, but the model takes {expected}")
    if not declared.rank_known:
        return
    if array.ndim != len(declared.dims):
        raise ModelError(f"{label} has {array.ndim} dimensions, but the model takes {len(declared.dims)}")
    for axis, (size, dim) in enumerate(zip(array.shape, declared.dims, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                raise ModelError(f"{label} has size {size} in dimension {axis}, but the model takes {dim}")
            continue
        known, where = sizes.setdefault(dim, (size, declared.name))
        if size != known:
            raise ModelError(f"{label} has {dim!r} = {size}, but input {where!r} has {dim!r} = {known}")
