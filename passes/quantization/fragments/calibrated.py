"""What passes that need a calibration table ask of it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fuseline.engine.calibration import CalibrationTable, Observer, choose_range
from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.quantization.grid import Array, Grid, scale_and_zero

__all__ = ["grid_of", "load_table", "range_of", "refuse"]


def load_table(name: str, path: str) -> CalibrationTable:
    if not path:
        raise PassError(
            f"pass {name!r} needs a calibration table",
            hint=f"`fuseline quantize` makes one; give it as {name}{{table=FILE}}",
        )
    return CalibrationTable.load(path)


def refuse(model: Model, table: CalibrationTable, value: ir.Value, name: str | None = None) -> str | None:
    """Why the table does not do for this value, or None; `name` is the one that it had in calibration."""
    name = name or value.name
    seen = table.get(name)
    if seen is not None and seen.not_finite:
        return f"{name!r} was not finite {seen.not_finite} times in calibration"
    if seen is None or not seen.batches:
        inner = value.graph is not None and value.graph is not model.graph
        where = " inside a branch or a loop, where calibration does not look" if inner else ""
        return f"the calibration table has nothing on {name!r}{where}"
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
