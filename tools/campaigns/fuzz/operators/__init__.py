"""How to draw each operator: one small function per kind of operator, found by `draws`."""

from fuseline.tools.campaigns.fuzz.operators import (
    control,
    elementwise,
    indexing,
    layout,
    neural,
    quantized,
    reductions,
    sequences,
)
from fuseline.tools.campaigns.fuzz.operators.table import Draw, draws, table

__all__ = [
    "Draw",
    "control",
    "draws",
    "elementwise",
    "indexing",
    "layout",
    "neural",
    "quantized",
    "reductions",
    "sequences",
    "table",
]
