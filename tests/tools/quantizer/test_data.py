"""Data to calibrate with that does not fit the model is refused before a range is taken from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer.data import batches_of

FREE = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'
FIXED = FREE.replace("N", "8")


@pytest.mark.parametrize(
    "text, arrays, message",
    [
        (FREE, {"x": np.zeros((3, 5), np.float32)}, "size 5 in dimension 1, but the model takes 4"),
        (FREE, {"x": np.zeros((3, 4), np.int64)}, "is int64, but the model takes float32"),
        (FREE, {"z": np.zeros((3, 4), np.float32)}, "the array for input 'x' is missing"),
        (FREE, {"x": np.float32(1)}, "holds no examples"),
        (FREE, {"x": np.zeros((3, 4), np.float32), "labels": np.zeros(2)}, "3 of 'x', 2 of 'labels'"),
        (FIXED, {"x": np.zeros((3, 4), np.float32)}, "holds 3 examples, but the model takes 8 at once"),
    ],
)
def test_data_that_do_not_fit(tmp_path: Path, text: str, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(FuselineError, match=message):
        batches_of(tmp_path / "data.npz", Model.from_text(text), batch_size=2)


def broken() -> list[object]:
    raise RuntimeError("no such table")


def test_a_function_of_the_users_that_raises_is_named() -> None:
    with pytest.raises(FuselineError, match="gave no batches: RuntimeError: no such table"):
        batches_of(f"{__name__}:broken", Model.from_text(FREE), batch_size=2)
