"""The terms of the pattern language: what a value of the graph may be matched against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.operators import Trait, lookup

__all__ = [
    "Alternatives",
    "Associative",
    "Capture",
    "Constant",
    "Constrained",
    "Many",
    "NodeTerm",
    "Output",
    "Term",
    "Through",
    "describe",
]


@dataclass(frozen=True, eq=False)
class Term:
    """Anything a value can be matched against. Terms are compared by identity: one term, one value."""


@dataclass(frozen=True, eq=False)
class Capture(Term):
    """Any value, remembered under the name of the parameter; `optional` also accepts an absent input."""

    name: str
    optional: bool = False

    def of(
        self,
        *,
        dtype: ir.DataType | tuple[ir.DataType, ...] | None = None,
        rank: int | None = None,
        constant: bool | None = None,
    ) -> Constrained:
        """The same value, accepted only with this element type, rank or constness."""
        dtypes = dtype if isinstance(dtype, tuple) or dtype is None else (dtype,)
        for given in dtypes or ():
            if not isinstance(given, ir.DataType):
                raise TypeError(f"{given!r} is no element type; one is onnx_ir.DataType.FLOAT")
        if rank is not None and (not isinstance(rank, int) or rank < 0):
            raise TypeError(f"{rank!r} is no rank")
        return Constrained(self, dtypes, rank, constant)


@dataclass(frozen=True, eq=False)
class Many(Term):
    """All remaining inputs of a node, remembered as a tuple."""

    name: str


@dataclass(frozen=True, eq=False)
class Constrained(Term):
    inner: Capture
    dtypes: tuple[ir.DataType, ...] | None
    rank: int | None
    constant: bool | None


@dataclass(frozen=True, eq=False)
class Constant(Term):
    """A constant of this content; floats within the relative tolerance."""

    value: npt.NDArray[Any]
    rtol: float

    def agrees(self, found: npt.NDArray[Any]) -> bool:
        if self.value.size != found.size:
            return False
        expected, actual = self.value.reshape(-1), found.reshape(-1)
        if expected.dtype.kind == "b" or actual.dtype.kind == "b":
            return bool(np.array_equal(expected.astype(bool), actual.astype(bool)))
        return bool(
            np.allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=self.rtol, atol=0)
        )


@dataclass(frozen=True, eq=False)
class NodeTerm:
    """A node: one of `op_types`, its inputs as terms, and conditions on attributes.

    An attribute's condition is a value, a predicate, or a capture. `shared` allows uses from outside.
    """

    op_types: tuple[str, ...]
    inputs: tuple[Term | None, ...]
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    shared: bool = False

    @property
    def commutative(self) -> bool:
        records = [lookup(self.domain, op_type) for op_type in self.op_types]
        return len(self.inputs) == 2 and all(r is not None and r.has(Trait.COMMUTATIVE) for r in records)

    def __str__(self) -> str:
        return f"{self.domain}::{'|'.join(self.op_types)}" if self.domain else "|".join(self.op_types)


@dataclass(frozen=True, eq=False)
class Output(Term):
    """The `index`-th output of a node."""

    node: NodeTerm
    index: int = 0


@dataclass(frozen=True, eq=False)
class Alternatives(Term):
    """Any one of the options; `pick`, if named, is remembered with the option's position."""

    options: tuple[Term, ...]
    pick: str | None = None


@dataclass(frozen=True, eq=False)
class Through(Term):
    """The inner term, behind at most so many nodes of the given (harmless) kinds."""

    inner: Term
    op_types: frozenset[str]
    at_most: int


@dataclass(frozen=True, eq=False)
class Associative(Term):
    """A tree of one associative operator whose leaves are the parts, grouped and ordered anyhow."""

    op_type: str
    parts: tuple[Term, ...]


def children(term: Term) -> Iterator[Term]:
    match term:
        case Output(node=node):
            yield from (t for t in node.inputs if t is not None)
        case Alternatives(options=options):
            yield from options
        case Through(inner=inner) | Constrained(inner=inner):
            yield inner
        case Associative(parts=parts):
            yield from parts
        case _:
            return


def describe(term: Term | None) -> str:
    """What the term expects, in words."""
    match term:
        case None:
            return "no input"
        case Constant(value=value):
            shown = value.reshape(-1)[:4].tolist()
            return f"the constant {shown[0] if value.size == 1 else shown}"
        case Output(node=node):
            return f"the output of {node}"
        case Alternatives(options=options):
            return " or ".join(dict.fromkeys(describe(o) for o in options))
        case Through(inner=inner):
            return describe(inner)
        case Associative(op_type=op_type, parts=parts):
            return f"a tree of {op_type} with {len(parts)} parts"
        case Constrained(inner=inner):
            return f"{inner.name} {_constraints(term)}"
        case Capture(name=name) | Many(name=name):
            return name
    return repr(term)


def _constraints(term: Constrained) -> str:
    words = []
    if term.dtypes is not None:
        words.append("of type " + " or ".join(d.name for d in term.dtypes))
    if term.rank is not None:
        words.append(f"of rank {term.rank}")
    if term.constant is not None:
        words.append("constant" if term.constant else "not constant")
    return ", ".join(words)


Predicate = Callable[[Any], bool]
