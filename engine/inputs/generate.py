"""Inputs that a model really runs on.

The first guess follows names, declared shapes and uses. If ONNX Runtime refuses it, other sizes are tried for
free dimensions (batch 1, equal sizes, one at a time, then a reproducible search); if it fails or yields
nothing but empty outputs, NaN and infinities, tame values are tried. What is returned has run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir.passes.common as common_passes

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.inputs.interface import Input, interface
from fuseline.engine.inputs.roles import Role, roles
from fuseline.engine.inputs.sizes import candidates, free_keys, implied_sizes
from fuseline.engine.inputs.values import STYLES, Padding, Style, draw
from fuseline.engine.model import Model

__all__ = ["ELEMENT_LIMIT", "Draft", "draft", "elements", "generate", "generate_sets"]

Array = npt.NDArray[Any]

# Guesses of free sizes stay below this many elements in all; fixed sizes are what they are.
ELEMENT_LIMIT = 1 << 20


@dataclass(frozen=True)
class Draft:
    """What is known about the inputs before sizes are chosen."""

    inputs: list[Input]
    roles: Mapping[str, Role]
    seed: int
    turn: int

    def draw(self, sizes: Mapping[str, int], style: Style, padding: Padding = "right") -> dict[str, Array]:
        chance = np.random.default_rng(self.seed)
        return {
            i.name: draw(i, self.roles[i.name], sizes, chance, style, self.turn, padding) for i in self.inputs
        }


def generate(
    model: Model, *, seed: int = 0, sizes: Mapping[str, int] | None = None, session: Any = None
) -> dict[str, Array]:
    """Inputs on which the model runs in ONNX Runtime; `sizes` fixes free dimensions by symbol.

    The same seed gives the same inputs. `session` may be an open session of the model.
    """
    inputs = interface(model)
    given = dict(sizes or {})
    _check_sizes(inputs, given)
    running = session or runtime.session(model, threads=1)
    drafted = draft(model, seed)
    implied = implied_sizes(model, inputs)
    try:
        return _search(running, drafted, implied, given)
    except ModelError:
        if not any(r.kind == "switch" for r in drafted.roles.values()):
            raise
        # The other branch may be closed to us: a mode that the model refuses.
        return _search(running, replace(drafted, turn=0), implied, given)


def generate_sets(
    model: Model, *, seed: int = 0, count: int = 2, session: Any = None
) -> list[dict[str, Array]]:
    """`count` input sets with different values, and different sizes where the model leaves them free."""
    running = session or runtime.session(model, threads=1)
    return [generate(model, seed=seed + i, session=running) for i in range(count)]


def draft(model: Model, seed: int) -> Draft:
    """What can be said about the model's inputs without running it."""
    return Draft(interface(model), _roles(model), seed, turn=seed)


def _search(
    running: Any, draft: Draft, implied: Mapping[str, int], given: Mapping[str, int]
) -> dict[str, Array]:
    """Inputs of the first sizes, in the order of likelihood, on which the model runs."""
    first_error: ModelError | None = None
    tried: set[tuple[int, ...]] = set()
    for guess in candidates(draft.inputs, {**implied, **given}, draft.seed):
        guess |= given
        key = tuple(guess.values())
        guessed = guess.keys() - given.keys()
        if key in tried or (guessed and elements(draft.inputs, guess) > ELEMENT_LIMIT):
            continue
        tried.add(key)
        try:
            return _attempt(running, draft, guess)
        except ModelError as error:
            first_error = first_error or error
    raise ModelError(
        f"no generated inputs make the model run ({len(tried)} size assignments tried); "
        f"the first attempt: {first_error.message if first_error else 'none'}",
        hint="give inputs of your own as an .npz file with one array per input",
    ) from first_error


def _attempt(running: Any, draft: Draft, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs of these sizes, having run; the first style of values whose outputs say anything."""
    ran: dict[str, Array] | None = None
    failure: ModelError | None = None
    for style in STYLES:
        drawn = draft.draw(sizes, style)
        try:
            outputs = runtime.run(running, drawn)
        except ModelError as error:
            failure = failure or error
            continue
        if any(_tells(v) for v in outputs.values()) or not outputs:
            return drawn
        ran = ran or drawn
    if ran is None:
        assert failure is not None
        raise failure
    return ran


def elements(inputs: list[Input], sizes: Mapping[str, int]) -> int:
    free = [i for i in inputs if any(isinstance(d, str) for d in i.dims)]
    return sum(math.prod(sizes[d] if isinstance(d, str) else d for d in i.dims) for i in free)


def _tells(value: Any) -> bool:
    """Whether comparing this output says anything: it is neither empty nor all NaN and infinities."""
    if not isinstance(value, np.ndarray):
        return True
    return value.size > 0 and (value.dtype.kind != "f" or bool(np.isfinite(value).any()))


def _roles(model: Model) -> dict[str, Role]:
    """Roles as the graph shows them; where a bound is unknown, once more with inferred shapes."""
    known = roles(model)
    if not any(r.kind == "index" and r.bound == 1 for r in known.values()):
        return known
    inferred = model.clone()
    common_passes.ShapeInferencePass()(inferred.ir)
    return roles(inferred)


def _check_sizes(inputs: list[Input], given: Mapping[str, int]) -> None:
    keys = free_keys(inputs)
    for key in given:
        if key not in keys:
            raise ModelError(
                f"the model has no free dimension {key!r}",
                hint=f"its free dimensions are {', '.join(keys)}" if keys else "all its sizes are fixed",
            )
