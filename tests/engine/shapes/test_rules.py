"""Shape rules: what is not known stays unknown."""

from __future__ import annotations

import pytest

from fuseline.engine.shapes.dims import Dims
from fuseline.engine.shapes.rules import broadcast


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(None, 3), (1, 3)], (None, 3)),
        ([(None, 3), (1, 1), (3,)], (None, 3)),
        ([(None,), (None,)], (None,)),
        ([(None,), ("N",)], (None,)),
        ([("N",), ("M",)], (None,)),
        ([(None,), (5,)], (5,)),
        ([("N", 1), (1, "N")], ("N", "N")),
        ([("min(8,S)",), ("S",)], ("S",)),
        ([("min(8,S)",), (None,)], (None,)),
        ([(), (None,)], (None,)),
    ],
)
def test_broadcast(shapes: list[Dims], expected: Dims) -> None:
    assert broadcast(shapes) == expected
    assert broadcast(shapes[::-1]) == expected
