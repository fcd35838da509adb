"""Which pipeline a case goes through: a ready one, or a random legal one."""

from __future__ import annotations

import random
from functools import cache

from fuseline.engine.pipeline import Pipeline
from fuseline.kernels import available

__all__ = ["READY", "draw_pipeline", "draw_training_pipeline"]

READY = ("inference-O1", "inference-O2", "inference-O3", "quantize-prepare")
_WEIGHTS = (2, 2, 5, 1)
_RANDOM_SHARE = 0.2
# Infers what other passes ask for, and removes what they leave behind.
_USEFUL = ("infer-shapes", "remove-unused")


@cache
def _passes() -> tuple[str, ...]:
    """Every pass of the ready inference pipelines."""
    names = {p.name: str(p) for ready in READY for p in Pipeline.resolve(ready).passes()}
    return tuple(names.values())


def draw_pipeline(chance: random.Random) -> str:
    if chance.random() >= _RANDOM_SHARE:
        return chance.choices(READY, _WEIGHTS)[0]
    chosen = chance.sample(_passes(), chance.randint(2, 12))
    if chance.random() < 0.5:
        chosen.insert(0, _USEFUL[0])
    return ",".join([*chosen, _USEFUL[1]])


def draw_training_pipeline(chance: random.Random) -> str:
    """The one with native operators where they were built."""
    return "training" if available() and chance.random() < 0.8 else "training-stock"
