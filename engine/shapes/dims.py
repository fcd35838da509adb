"""Arithmetic on dimensions that may be symbolic.

A dimension is a number, a name or a sum of products such as "2*N*S + 1", or None when nothing is known. What
exporters write in brackets, such as "(S//2)", is taken for a name. Sums are kept in one canonical spelling,
so two dimensions are provably equal exactly when they compare equal.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping

import onnx_ir as ir

__all__ = [
    "Dim",
    "Dims",
    "add",
    "at_most",
    "dims_of",
    "divide",
    "equal",
    "evaluate",
    "is_contested",
    "is_placeholder",
    "known",
    "multiply",
    "names_in",
    "product",
    "shape_of",
    "subtract",
    "taken",
    "uncapped",
]

Dim = int | str | None
Dims = tuple[Dim, ...]

_Polynomial = dict[tuple[str, ...], int]
# What exporters write for every dimension they do not know, with or without a number; two of one name are
# not equal. A name that fuseline or the user gave is none of these.
_PLACEHOLDER = re.compile(
    r"(\?|\*|-?\d*|unk|unknown|none|null|nan|any|undef|undefined|dynamic)[_.]*\d*", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z_][\w.:/#]*")
_FLATTENED = re.compile(r"\(\((\w+)\*(\w+)\)//(\w+)\)")


def dims_of(value: ir.Value | None) -> Dims | None:
    """The value's shape; None if not even the rank is known.

    Equal names are equal sizes. A dimension that the model leaves open is None, except in an input of a
    graph: there it is called `name#axis`, since whatever is fed has one size.
    """
    shape = value.shape if value is not None else None
    # A sequence is written with the shape of its elements, and has none itself.
    if shape is None or value is None or value.type.__class__ is ir.SequenceType:
        return None
    found: Dims = tuple([(d if d >= 0 else None) if isinstance(d, int) else _meant(d.value) for d in shape])
    return _named(value, found) if None in found and value.is_graph_input() else found


@functools.lru_cache(maxsize=4096)
def is_placeholder(name: str | None) -> bool:
    """Whether a dimension of this name is just not known."""
    return name is not None and _PLACEHOLDER.fullmatch(name) is not None


@functools.lru_cache(maxsize=4096)
def _meant(name: str | None) -> str | None:
    """The size that a name stands for in every place; None for a placeholder."""
    if name is None or is_placeholder(name):
        return None
    # Torch writes the length of a flattened and restored mask as ((length*batch)//batch).
    found = _FLATTENED.fullmatch(name)
    if found is None or found[3] not in (found[1], found[2]):
        return name
    return found[1] if found[3] == found[2] else found[2]


def _named(value: ir.Value, dims: Dims) -> Dims:
    if value.name is None or not _NAME.fullmatch(value.name):
        return dims
    return tuple(f"{value.name}#{axis}" if dim is None else dim for axis, dim in enumerate(dims))


def shape_of(dims: Dims) -> ir.Shape:
    return ir.Shape(dims)


def known(dims: Dims | None) -> tuple[int, ...] | None:
    """The dims if all are numbers."""
    if dims is None or not all(isinstance(d, int) for d in dims):
        return None
    return dims  # type: ignore[return-value]


def equal(a: Dims | None, b: Dims | None) -> bool:
    """Whether the shapes are provably the same."""
    return a is not None and a == b and None not in a


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    left, right = _polynomial(a), _polynomial(b)
    if left is None or right is None:
        return a if b == 0 else b if a == 0 else None
    return _canonical(_sum(left, right, 1))


def subtract(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    left, right = _polynomial(a), _polynomial(b)
    if left is None or right is None:
        return a if b == 0 else None
    return _canonical(_sum(left, right, -1))


def multiply(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    left, right = _polynomial(a), _polynomial(b)
    if left is None or right is None:
        return a if b == 1 else b if a == 1 else None
    made: _Polynomial = {}
    for factors, count in left.items():
        for others, times in right.items():
            key = tuple(sorted((*factors, *others)))
            made[key] = made.get(key, 0) + count * times
    return _canonical(made)


def divide(a: Dim, b: Dim) -> Dim:
    """a / b where it goes without remainder (numbers round down); None where that is not certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else None
    if b == 1:
        return a
    if a is not None and a == b:
        return 1
    left, right = _polynomial(a), _polynomial(b)
    if left is None or right is None or len(right) != 1:
        return None
    [(divisor, by)] = right.items()
    made: _Polynomial = {}
    for factors, count in left.items():
        rest = _without(factors, divisor)
        if rest is None or not by or count % by:
            return None
        made[rest] = count // by
    return _canonical(made)


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = multiply(total, dim)
    return total


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """The number that a dimension is with these sizes; the dimension itself where one is missing."""
    polynomial = _polynomial(dim)
    if polynomial is None or any(name not in sizes for factors in polynomial for name in factors):
        return dim
    return sum(count * math.prod(sizes[name] for name in factors) for factors, count in polynomial.items())


def names_in(dim: Dim) -> tuple[str, ...]:
    """The names that a dimension is made of; a spelling that is no sum of products is one itself."""
    polynomial = _polynomial(dim)
    if polynomial is None:
        return (dim,) if isinstance(dim, str) else ()
    return tuple(dict.fromkeys(name for factors in polynomial for name in factors))


def at_most(limit: int, dim: Dim) -> Dim:
    """The smaller of the two, written min(limit,dim): the length of a table cut to a length."""
    if isinstance(dim, int):
        return min(limit, dim)
    return f"min({limit},{dim})" if dim is not None and "-" not in dim else None


def uncapped(dim: Dim) -> str | None:
    """The S of min(limit,S), where the limit is above 1: the two are 1 together."""
    found = re.fullmatch(r"min\((\d+),(.+)\)", dim) if isinstance(dim, str) else None
    return found[2] if found is not None and found[1] not in ("0", "1") else None


def taken(size: int, start: int, end: int, step: int) -> range:
    """The positions that Slice takes of an axis: ONNX clamps as no Python slice does when stepping back."""
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size if start < 0 else start, 0), highest)
    last = min(max(end + size if end < 0 else end, lowest), highest)
    return range(first, last, step)


def is_contested(end: int, step: int) -> bool:
    """Whether Slice steps back to an end that runtimes take for the beginning, and ONNX for the last one."""
    return step < 0 and end in (2**31 - 1, 2**63 - 1)


def _sum(left: _Polynomial, right: _Polynomial, sign: int) -> _Polynomial:
    made = dict(left)
    for factors, count in right.items():
        made[factors] = made.get(factors, 0) + sign * count
    return made


def _without(factors: tuple[str, ...], divisor: tuple[str, ...]) -> tuple[str, ...] | None:
    rest = list(factors)
    for factor in divisor:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def _canonical(polynomial: _Polynomial) -> Dim:
    terms = {f: c for f, c in polynomial.items() if c}
    if not any(terms):
        return terms.get((), 0)
    ordered = sorted(terms, key=lambda f: (-len(f), f))
    return " + ".join(_term(f, terms[f]) for f in ordered)


def _term(factors: tuple[str, ...], count: int) -> str:
    parts = [str(count)] if count != 1 or not factors else []
    return "*".join([*parts, *factors])


def _polynomial(dim: Dim) -> _Polynomial | None:
    if isinstance(dim, int):
        return {(): dim}
    return _parse(dim) if dim is not None else None


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> _Polynomial | None:
    """A sum of products of numbers, names and whole terms in brackets, which stay as they are written; None
    for any other spelling."""
    made: _Polynomial = {}
    for term in _split(text, " + "):
        count, factors = 1, []
        for factor in _split(term, "*"):
            if re.fullmatch(r"-?\d+", factor):
                count *= int(factor)
            elif _NAME.fullmatch(factor) or _bracketed(factor):
                factors.append(factor)
            else:
                return None
        key = tuple(sorted(factors))
        made[key] = made.get(key, 0) + count
    return made


def _split(text: str, by: str) -> list[str]:
    """The parts between separators that no bracket encloses."""
    parts = text.split(by)
    if "(" not in text:
        return parts
    joined = [parts[0]]
    for part in parts[1:]:
        if joined[-1].count("(") > joined[-1].count(")"):
            joined[-1] += by + part
        else:
            joined.append(part)
    return joined


def _bracketed(text: str) -> bool:
    """Whether one pair of brackets encloses the whole text."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1 and letter == ")"
    return False
