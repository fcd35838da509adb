"""Shape rules: what is not known stays unknown."""

from __future__ import annotations

import pytest

from fuseline.engine.shapes.dims import Dims
from fuseline.engine.shapes.rules import broadcast, reshaped


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


@pytest.mark.parametrize(
    ("data", "target", "expected"),
    [
        (("N", 6, "(S//10)"), (0, 6, -1), ("N", 6, "(S//10)")),
        (("N", 6, "(S//10)"), (0, -1), ("N", "6*(S//10)")),
        (("N", "S", 6), ("S", -1, 3), ("S", "2*N", 3)),
        (("N", None), ("N", -1), ("N", None)),
        ((2, 3, "N"), (-1, 2), ("3*N", 2)),
        (None, (4, -1), (4, None)),
    ],
)
def test_the_rest_of_a_reshape(data: Dims | None, target: Dims, expected: Dims) -> None:
    assert reshaped(data, target, allow_zero=False) == expected
