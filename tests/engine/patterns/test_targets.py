"""One declaration for inference and training."""

from __future__ import annotations

from typing import Any

import pytest

from fuseline.engine.errors import PassError
from fuseline.engine.patterns import Builder, Fusion, Op


class FuseTwice(Fusion):
    """Neg(Neg(x)) → Identity(x)"""

    name = "fuse-twice"
    phase = "inference"
    produces = ("Identity",)

    def match(self, op: Op, x: Any) -> Any:
        return op.Neg(op.Neg(x))

    def replace(self, op: Builder, x: Any) -> Any:
        return op.Identity(x)


class FuseTwiceTraining(FuseTwice, target="training"):
    """Neg(Neg(x)) → Abs(x)"""

    produces = ("Abs",)

    def replace(self, op: Builder, x: Any) -> Any:
        return op.Abs(x)


def test_the_twin_takes_over_the_pattern_and_is_the_counterpart() -> None:
    assert (FuseTwiceTraining.name, FuseTwiceTraining.phase) == ("fuse-twice-training", "pre-gradient")
    assert FuseTwiceTraining.counterpart is None
    assert (FuseTwice.name, FuseTwice.phase, FuseTwice.counterpart) == (
        "fuse-twice",
        "inference",
        "fuse-twice-training",
    )
    assert FuseTwice.produces == ("Identity",)
    assert FuseTwiceTraining().pattern().size == FuseTwice().pattern().size


def test_there_is_one_twin() -> None:
    with pytest.raises(PassError, match="'fuse-twice' for training, which cannot be: fuse-twice-training"):

        class Again(FuseTwice, target="training"):
            """Neg(Neg(x)) → x"""


def test_what_serves_training_already_has_none() -> None:
    class FuseAnywhere(FuseTwice):
        """Neg(Neg(x)) → x"""

        name = "fuse-anywhere"
        phase = "any"
        counterpart = None

    with pytest.raises(PassError, match="it is for 'any'"):

        class Again(FuseAnywhere, target="training"):
            """Neg(Neg(x)) → x"""
