"""Second moments of activations, XᵀX: what rounding with regard to the data needs of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.calibration.collect import fetching
from fuseline.engine.errors import FuselineError
from fuseline.engine.files import atomic_write
from fuseline.engine.model import Model

__all__ = ["Moments", "load_moments", "save_moments", "second_moments"]

Array = npt.NDArray[Any]

# Sums of squares of what is larger may overflow float32.
_SQUARABLE = 1e15


@dataclass
class Moments:
    """Of one value's last axis: the sum of XᵀX, the sum of magnitudes, and the number of rows."""

    products: Array
    magnitudes: Array
    rows: int = 0

    @property
    def mean_magnitude(self) -> Array:
        made: Array = self.magnitudes / max(1, self.rows)
        return made


def second_moments(
    model: Model,
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    widths: Mapping[str, int],
    *,
    at_once: int = 1 << 28,
) -> dict[str, Moments]:
    """Moments of values by name (and width); so many bytes `at_once`, each time in a pass over the data."""
    made: dict[str, Moments] = {}
    for names in _parts(widths, at_once):
        for results in fetching(model, batches(), names):
            for name, array in results.items():
                _add(made, name, array, widths[name])
    return made


def _add(made: dict[str, Moments], name: str, array: Array, width: int) -> None:
    if array.shape[-1] != width:
        raise FuselineError(f"{name!r} has {array.shape[-1]} channels where {width} were expected")
    rows = array.reshape(array.size // width if width else 0, width).astype(np.float32)
    if not np.isfinite(rows).all():
        raise FuselineError(f"{name!r} is not finite on the calibration data")
    if np.abs(rows).max(initial=0.0) > _SQUARABLE:
        rows = rows.astype(np.float64)
    if name not in made:
        made[name] = Moments(np.zeros((width, width)), np.zeros(width))
    made[name].products += rows.T @ rows
    made[name].magnitudes += np.abs(rows).sum(axis=0)
    made[name].rows += len(rows)


def _parts(widths: Mapping[str, int], at_once: int) -> Iterator[Collection[str]]:
    part: list[str] = []
    size = 0
    for name, width in widths.items():
        if part and size + 8 * width**2 > at_once:
            yield part
            part, size = [], 0
        part.append(name)
        size += 8 * width**2
    if part:
        yield part


def save_moments(path: str | Path, moments: Mapping[str, Moments]) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {}
    for name, found in moments.items():
        arrays |= {f"products:{name}": found.products, f"magnitudes:{name}": found.magnitudes}
        arrays[f"rows:{name}"] = np.array(found.rows)
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def load_moments(path: str | Path) -> dict[str, Moments]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = [n.removeprefix("rows:") for n in archive.files if n.startswith("rows:")]
            return {
                n: Moments(archive[f"products:{n}"], archive[f"magnitudes:{n}"], int(archive[f"rows:{n}"]))
                for n in names
            }
    except FileNotFoundError:
        raise FuselineError(f"there are no moments in {path}: no such file") from None
    except (OSError, ValueError, KeyError) as error:
        raise FuselineError(f"{path} holds no moments: {error}") from error
