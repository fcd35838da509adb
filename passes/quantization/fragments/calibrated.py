"""What passes that need a calibration table ask of it."""

from __future__ import annotations

import numpy as np

from fuseline.engine.calibration import CalibrationTable, Observer, choose_range
from fuseline.engine.errors import PassError
from fuseline.engine.quantization.grid import Array, Grid, scale_and_zero

__all__ = ["grid_of", "load_table", "range_of", "refuse"]


def load_table(name: str, path: str) -> CalibrationTable:
    if not path:
        raise PassError(
            f"pass {name!r} needs a calibration table",
            hint=f"`fuseline quantize` makes one; give it as {name}{{table=FILE}}",
        )
    return CalibrationTable.load(path)


def refuse(table: CalibrationTable, name: str | None) -> str | None:
    """Why the table does not do for this value, or None."""
    seen = table.get(name)
    if seen is not None and seen.not_finite:
        return f"{name!r} was not finite {seen.not_finite} times in calibration"
    if seen is None or not seen.batches:
        return f"the calibration table has nothing on {name!r}"
    return None


def grid_of(activations: str, symmetric: bool) -> Grid:
    return Grid(signed=activations == "int8", symmetric=symmetric)


def range_of(
    table: CalibrationTable, name: str | None, observer: Observer, percentile: float, grid: Grid
) -> tuple[Array, Array]:
    """Scale and zero point of a calibrated value."""
    seen = table.get(name)
    assert seen is not None
    low, high = choose_range(seen, observer, grid, percentile=percentile)
    scale, zero = scale_and_zero(low, high, grid)
    return np.asarray(scale), np.asarray(zero)
