"""The inputs at which rewrites go wrong unnoticed: empty, single and odd sizes, masks of every kind, the ends
of integer ranges, NaN and infinity.

Each variation is tried on the model itself first. Where that does not run, there is nothing to compare, and
the variation is named among the skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.inputs.generate import ELEMENT_LIMIT, Draft, draft, elements
from fuseline.engine.inputs.interface import Input
from fuseline.engine.inputs.sizes import free_keys
from fuseline.engine.inputs.values import Padding, Style
from fuseline.engine.model import Model
from fuseline.engine.verification.isolated import IsolatedSession, session

__all__ = ["InputSet", "Variations", "variations"]

Array = npt.NDArray[Any]

# Of so many free dimensions each is varied by itself; of further ones only all together.
_KEYS_VARIED = 4
_ODD = (3, 5, 7, 9, 11, 13)
# A model so slow gets few variations: as many as fit into this, or into as long as the plain inputs took.
_SECONDS = 2.0


@dataclass(frozen=True)
class InputSet:
    """Inputs for one run, and what is special about them."""

    label: str
    feeds: Mapping[str, Array]
    finite: bool = True
    """Whether results that are not finite say something else than their being so."""


@dataclass
class Variations:
    sets: list[InputSet] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Labels of what the model itself did not run on."""


@dataclass(frozen=True)
class _Plan:
    label: str
    sizes: Mapping[str, int]
    style: Style = "ordinary"
    padding: Padding = "right"


def variations(
    model: Model, base: Mapping[str, Array], running: IsolatedSession, seed: int = 0
) -> Variations:
    """Input sets around `base`, on which the model ran in the session `running`."""
    drafted = replace(draft(model, seed + 1), turn=seed)
    found = Variations()
    began = time.perf_counter()
    _ran(running, base)
    patience = max(_SECONDS, 4 * (time.perf_counter() - began))
    for plan in _plans(drafted, _sizes(drafted.inputs, base)):
        if time.perf_counter() - began > patience:
            found.skipped.append(f"{plan.label} (too slow)")
            continue
        if elements(drafted.inputs, dict(plan.sizes)) > ELEMENT_LIMIT:
            continue
        feeds = drafted.draw(plan.sizes, plan.style, plan.padding)
        if _ran(running, feeds):
            found.sets.append(InputSet(plan.label, feeds, plan.style != "non-finite"))
            continue
        found.skipped.append(plan.label)
        if not running.alive:
            running = session(model)
    return found


def _ran(running: IsolatedSession, feeds: Mapping[str, Array]) -> bool:
    try:
        runtime.run(running, feeds)
    except ModelError:
        return False
    return True


def _sizes(inputs: list[Input], base: Mapping[str, Array]) -> dict[str, int]:
    return {
        dim: size
        for wanted in inputs
        for dim, size in zip(wanted.dims, base[wanted.name].shape, strict=False)
        if isinstance(dim, str)
    }


def _plans(drafted: Draft, sizes: dict[str, int]) -> Iterator[_Plan]:
    keys = free_keys(drafted.inputs)
    yield _Plan("other values", sizes)
    if keys:
        yield _Plan("every free size 1", dict.fromkeys(keys, 1))
        yield _Plan("odd sizes", {key: _ODD[i % len(_ODD)] for i, key in enumerate(keys)})
    for key in keys[:_KEYS_VARIED]:
        yield _Plan(f"{key} = 1", {**sizes, key: 1})
    if any(role.kind == "mask" for role in drafted.roles.values()):
        yield _Plan("masks padded on the left", sizes, padding="left")
        yield _Plan("masks without padding", sizes, padding="none")
        yield _Plan("masks with empty rows", sizes, padding="whole rows")
    free = [i for i in drafted.inputs if drafted.roles[i.name].kind == "any"]
    if any(i.dtype.is_integer() for i in free):
        yield _Plan("the ends of the integers", sizes, "limits")
    if any(i.dtype.is_floating_point() for i in free):
        yield _Plan("NaN and infinity", sizes, "non-finite")
    # Last, since ONNX Runtime ends the process on some empty inputs.
    for key in keys[:_KEYS_VARIED]:
        yield _Plan(f"{key} = 0", {**sizes, key: 0})
