"""How far two results may lie apart and still count as equal, per element type.

Rewrites reorder float arithmetic; nothing else may show. An element may differ by

    relative · |expected|  +  absolute · min(1, scale)  +  scaled · scale  +  floor

where `scale` is the largest magnitude in the tensor: cancellation leaves noise in proportion to it. Types
that are not listed (integers, booleans, strings) have to agree exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EXACT", "TOLERANCES", "Tolerance", "tolerance_for"]


@dataclass(frozen=True)
class Tolerance:
    relative: float
    absolute: float
    scaled: float
    floor: float


EXACT = Tolerance(0.0, 0.0, 0.0, 0.0)

TOLERANCES: dict[str, Tolerance] = {
    "float64": Tolerance(relative=1e-9, absolute=1e-11, scaled=1e-12, floor=1e-14),
    "float32": Tolerance(relative=1e-3, absolute=1e-5, scaled=2e-6, floor=1e-8),
    "float16": Tolerance(relative=1e-2, absolute=4e-3, scaled=2e-3, floor=1e-6),
    "bfloat16": Tolerance(relative=4e-2, absolute=2e-2, scaled=1e-2, floor=1e-6),
    "complex64": Tolerance(relative=1e-3, absolute=1e-5, scaled=2e-6, floor=1e-8),
    "complex128": Tolerance(relative=1e-9, absolute=1e-11, scaled=1e-12, floor=1e-14),
}


def tolerance_for(dtype: str) -> Tolerance:
    return TOLERANCES.get(dtype, EXACT)
