"""What the passes that choose native operators have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["EMPTY"]

EMPTY: npt.NDArray[Any] = np.zeros(0, np.float32)
"""Stands for an absent bias, mask or residual: native operators never leave an input out."""
