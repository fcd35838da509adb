"""The shapes of an operator's ports, as the native library checks them before it computes.

A shape is a text, the same in the library (``src/contract.h``): axes separated by commas, each a size
(``3``), a letter that stands for the same size everywhere (``N``), that or 1 (``B|1``), or any number of axes
(``*R``). As a whole: empty for anything; ``1`` for one element in whatever rank (an output is [1]);
``()`` for a scalar; ``…?`` where a tensor without elements may stand for an absent one; ``^…`` for what
broadcasts to the rest; ``…/…`` for one of two forms, which says nothing where both fit and differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Bindings", "Dimension", "matches", "resolve"]

Dimension = int | str | None
Dimensions = tuple[Dimension, ...]


@dataclass
class Bindings:
    """What the letters stand for, as far as the shapes have told."""

    sizes: dict[str, Dimension] = field(default_factory=dict)
    packs: dict[str, Dimensions] = field(default_factory=dict)
    form: int = 0

    def copy(self) -> Bindings:
        return Bindings(dict(self.sizes), dict(self.packs), self.form)


def matches(pattern: str, shape: Sequence[Dimension], bindings: Bindings) -> bool:
    """Whether the shape fits the pattern and what is bound already; binds the letters that it meets first."""
    if not pattern or (pattern.endswith("?") and 0 in shape):
        return True
    if pattern == "1":
        return all(size == 1 or not isinstance(size, int) for size in shape)
    fits = _broadcasts if pattern.startswith("^") else _fits
    trials = [(index, form, bindings.copy()) for index, form in enumerate(_forms(pattern))]
    fitting = [(index, trial) for index, form, trial in trials if fits(form, tuple(shape), trial)]
    if fitting and all(trial.sizes == fitting[0][1].sizes for _, trial in fitting):
        index, trial = fitting[0]
        bindings.sizes, bindings.packs = trial.sizes, trial.packs
        if "/" in pattern:
            bindings.form = index
    return bool(fitting)


def resolve(pattern: str, bindings: Bindings) -> Dimensions | None:
    """The shape that the pattern stands for; None where a letter of it is not bound, or anything would do."""
    if not pattern or pattern[0] == "^" or pattern[-1] == "?":
        return None
    forms = _forms(pattern)
    result: list[Dimension] = []
    for axis in forms[bindings.form if len(forms) > 1 else 0]:
        if axis.isdigit():
            result.append(int(axis))
        elif axis[0] == "*":
            if axis[1] not in bindings.packs:
                return None
            result.extend(bindings.packs[axis[1]])
        elif axis[0] not in bindings.sizes:
            return None
        else:
            result.append(bindings.sizes[axis[0]])
    return tuple(result)


def _forms(pattern: str) -> list[list[str]]:
    texts = pattern.removesuffix("?").removeprefix("^").split("/")
    return [[] if text == "()" else text.split(",") for text in texts]


def _fits(form: list[str], shape: Dimensions, bindings: Bindings) -> bool:
    packs = [index for index, axis in enumerate(form) if axis[0] == "*"]
    if not packs:
        return len(form) == len(shape) and _bind_all(form, shape, bindings)
    before, after = packs[0], len(form) - packs[0] - 1
    if len(shape) < before + after:
        return False
    end = len(shape) - after
    return (
        _bind_all(form[:before], shape[:before], bindings)
        and _bind_pack(form[before][1], shape[before:end], bindings)
        and _bind_all(form[before + 1 :], shape[end:], bindings)
    )


def _broadcasts(form: list[str], shape: Dimensions, bindings: Bindings) -> bool:
    if len(shape) > len(form):
        return False
    tail = form[len(form) - len(shape) :]
    return all(size == 1 or _bind(axis, size, bindings) for axis, size in zip(tail, shape, strict=True))


def _bind_all(axes: list[str], shape: Dimensions, bindings: Bindings) -> bool:
    return all(_bind(axis, size, bindings) for axis, size in zip(axes, shape, strict=True))


def _bind(axis: str, size: Dimension, bindings: Bindings) -> bool:
    if axis.isdigit():
        return not isinstance(size, int) or size == int(axis)
    if axis.endswith("|1") and size == 1:
        return True
    agreed, bindings.sizes[axis[0]] = _agree(bindings.sizes.get(axis[0]), size)
    return agreed


def _bind_pack(letter: str, shape: Dimensions, bindings: Bindings) -> bool:
    known = bindings.packs.get(letter, shape)
    if len(known) != len(shape):
        return False
    pairs = [_agree(a, b) for a, b in zip(known, shape, strict=True)]
    bindings.packs[letter] = tuple(size for _, size in pairs)
    return all(agreed for agreed, _ in pairs)


def _agree(bound: Dimension, found: Dimension) -> tuple[bool, Dimension]:
    """Sizes that are not known agree with everything, and learn."""
    if isinstance(bound, int) and isinstance(found, int):
        return bound == found, bound
    if isinstance(bound, int) or (bound is not None and not isinstance(found, int)):
        return True, bound
    return True, found
