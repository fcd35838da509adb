"""Tracing: a `match` method is run once with terms as arguments, and what it returns is the pattern."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from fuseline.engine.authoring import blamed, defined_at
from fuseline.engine.errors import PassError, did_you_mean
from fuseline.engine.operators import Trait, lookup
from fuseline.engine.operators.signatures import attribute_names, is_known, largest_arities, similar
from fuseline.engine.patterns.terms import (
    Alternatives,
    Associative,
    Capture,
    Constant,
    Constrained,
    Many,
    NodeTerm,
    Output,
    Term,
    Through,
    children,
)
from fuseline.engine.plurals import counted

__all__ = ["Op", "Pattern", "one_of", "trace"]

OpKey = tuple[str, str]
Array = npt.NDArray[Any]


PatternInput = Term | bool | float | Sequence[int] | Sequence[float] | Array | None
"""A term, a constant, or None for an input that is absent."""
Condition = Term | int | float | str | Sequence[int] | Callable[[Any], bool] | None
"""What an attribute has to be: a value, a predicate, or a capture."""


class _NodeMaker(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        *inputs: PatternInput,
        _outputs: int,
        _domain: str = "",
        _label: str | None = None,
        _shared: bool = False,
        **attributes: Condition,
    ) -> tuple[Term, ...]: ...
    @overload
    def __call__(
        self,
        *inputs: PatternInput,
        _domain: str = "",
        _label: str | None = None,
        _shared: bool = False,
        **attributes: Condition,
    ) -> Term: ...


@dataclass(frozen=True)
class Op:
    """Writes patterns: `op.Add(x, 1.0)` is the output of an Add node of x and the constant 1.

    Keyword arguments are attributes (a value, a predicate, or a capture), apart from `_domain`, `_outputs`
    (how many), `_label` (to ask for the node later) and `_shared` (may be used outside the pattern).
    Numbers are constants, matched within the relative tolerance `rtol`.
    """

    rtol: float = 1e-4

    def __getattr__(self, op_type: str) -> _NodeMaker:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def make(*inputs: PatternInput, **options: Any) -> Any:
            return self.node((op_type,), *inputs, **options)

        return make

    @overload
    def node(  # type: ignore[overload-overlap]
        self,
        op_types: Sequence[str],
        *inputs: PatternInput,
        _outputs: int,
        _domain: str = "",
        _label: str | None = None,
        _shared: bool = False,
        **attributes: Condition,
    ) -> tuple[Term, ...]: ...
    @overload
    def node(
        self,
        op_types: Sequence[str],
        *inputs: PatternInput,
        _outputs: None = None,
        _domain: str = "",
        _label: str | None = None,
        _shared: bool = False,
        **attributes: Condition,
    ) -> Term: ...
    def node(
        self,
        op_types: Sequence[str],
        *inputs: PatternInput,
        _outputs: int | None = None,
        _domain: str = "",
        _label: str | None = None,
        _shared: bool = False,
        **attributes: Any,
    ) -> Term | tuple[Term, ...]:
        """A node of any of several operators; with `_outputs` a tuple of so many terms."""
        for op_type in op_types:
            _check_operator(op_type, _domain, len(inputs), attributes, _outputs or 1)
        terms = tuple(self.term(i) for i in inputs)
        node = NodeTerm(tuple(op_types), terms, _domain, attributes, _label, _shared)
        outputs = tuple(Output(node, index) for index in range(_outputs or 1))
        return outputs[0] if _outputs is None else outputs

    def term(self, value: PatternInput) -> Term | None:
        if value is None or isinstance(value, Term):
            return value
        return self.constant(value)

    def constant(
        self, value: bool | float | Sequence[int] | Sequence[float] | Array, rtol: float | None = None
    ) -> Constant:
        return Constant(np.asarray(value), self.rtol if rtol is None else rtol)

    def one_of(self, *options: PatternInput, pick: str | None = None) -> Term:
        """Any of the alternatives; with `pick`, its position is captured under that name."""
        if not options:
            raise PassError("one_of() names no alternative")
        return Alternatives(tuple(_present(self.term(o)) for o in options), pick)

    def optional(self, wrap: Callable[[Term], Term], inner: PatternInput) -> Term:
        """`wrap(inner)` or just `inner`."""
        return self.repeated(wrap, inner, at_most=1)

    def repeated(
        self, wrap: Callable[[Term], Term], inner: PatternInput, *, at_least: int = 0, at_most: int = 8
    ) -> Term:
        """`wrap(wrap(… inner))`, so many times; the longest chain is preferred."""
        if not callable(wrap):
            raise PassError("what wraps is an operator without its input: op.optional(op.Cast, x)")
        if not 0 <= at_least <= at_most:
            raise PassError(f"a chain of at least {at_least} and at most {at_most} nodes is none")
        levels = [_present(self.term(inner))]
        while len(levels) <= at_most:
            levels.append(wrap(levels[-1]))
        chosen = tuple(reversed(levels[at_least:]))
        return chosen[0] if len(chosen) == 1 else Alternatives(chosen)

    def through(self, inner: PatternInput, *op_types: str, at_most: int = 2) -> Term:
        """`inner`, or `inner` behind a few nodes of kinds that do not matter here (their first input)."""
        kinds = frozenset(op_types or ("Identity", "Cast", "Reshape", "Transpose"))
        for op_type in kinds:
            _check_operator(op_type, "", 1, {})
        return Through(_present(self.term(inner)), kinds, at_most)

    def associative(self, op_type: str, *parts: PatternInput) -> Term:
        """All parts combined by one associative and commutative operator, in any grouping and order."""
        operator = lookup("", op_type)
        _check_operator(op_type, "", 2, {})
        if operator is not None and not operator.has(Trait.ASSOCIATIVE | Trait.COMMUTATIVE):
            raise PassError(f"{op_type} is not associative and commutative: write its nodes one by one")
        if len(parts) < 2:
            raise PassError(f"a tree of {op_type} has two leaves at least, not {len(parts)}")
        return Associative(op_type, tuple(_present(self.term(p)) for p in parts))

    def example(
        self, function: Callable[..., Any], *terms: PatternInput, shapes: Sequence[Sequence[int]]
    ) -> Any:
        """The pattern of a small torch function: it is exported, and its graph becomes the pattern."""
        from fuseline.engine.patterns.by_example import pattern_of

        return pattern_of(self, function, terms, shapes)


def one_of(*options: PatternInput, pick: str | None = None) -> Term:
    """Any of the alternatives."""
    return Op().one_of(*options, pick=pick)


def _check_operator(
    op_type: str, domain: str, arity: int, attributes: Mapping[str, Any], outputs: int = 1
) -> None:
    """Refuse what no node can ever be: it would never match, without a word."""
    name = f"{domain}::{op_type}" if domain else op_type
    if not is_known(domain, op_type):
        raise PassError(f"there is no operator {name!r}", hint=similar(domain, op_type))
    names, most = attribute_names(domain, op_type), largest_arities(domain, op_type)
    wrong = next((a for a in attributes if names is not None and a not in names), None)
    if wrong is not None:
        hint = did_you_mean(wrong, names or ()) or f"it knows {', '.join(sorted(names or ())) or 'none'}"
        raise PassError(f"{name} has no attribute {wrong!r}", hint=hint)
    if most is not None and arity > most[0]:
        raise PassError(f"{name} takes at most {counted(most[0], 'input')}, not {arity}")
    if most is not None and outputs > most[1]:
        raise PassError(f"{name} makes at most {counted(most[1], 'output')}, not {outputs}")


def _present(term: Term | None) -> Term:
    if term is None:
        raise PassError(
            "None cannot be an alternative in a pattern", hint="give the capture a default of None"
        )
    return term


@dataclass(frozen=True)
class Pattern:
    """A traced pattern: its output terms, the first of which is the anchor."""

    outputs: tuple[Term, ...]

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        seen: dict[int, Term] = {}
        stack = list(self.outputs)
        while stack:
            term = stack.pop()
            if id(term) not in seen:
                seen[id(term)] = term
                stack.extend(children(term))
        return tuple(seen.values())

    @cached_property
    def captured(self) -> frozenset[str]:
        """The names that a match remembers: of values, of attributes, and of the alternative picked."""
        names: set[str] = set()
        for term in self.terms:
            match term:
                case Capture(name=name) | Many(name=name):
                    names.add(name)
                case Alternatives(pick=str(pick)):
                    names.add(pick)
                case Output(node=node):
                    names.update(c.name for c in node.attributes.values() if isinstance(c, Capture))
        return frozenset(names)

    @cached_property
    def size(self) -> int:
        """The number of nodes of the largest form."""
        return len(frozenset[object]().union(*map(_largest, self.outputs)))

    @cached_property
    def ambiguous(self) -> bool:
        """Whether one place can match in several ways of different size."""
        return any(isinstance(t, Alternatives | Through | Associative) for t in self.terms)

    @cached_property
    def anchors(self) -> frozenset[OpKey]:
        """The operators the last node may be."""
        return frozenset(_heads(self.outputs[0]))

    @cached_property
    def required(self) -> tuple[frozenset[OpKey], ...]:
        """Sets of operators of each of which a graph needs one; a graph without them cannot match."""
        return tuple(dict.fromkeys(_required(t) for o in self.outputs for t in _certain(o)))


def _heads(term: Term) -> Iterator[OpKey]:
    match term:
        case Output(node=node):
            yield from ((node.domain, op) for op in node.op_types)
        case Alternatives(options=options):
            for option in options:
                yield from _heads(option)
        case Associative(op_type=op_type):
            yield ("", op_type)
        case Through(inner=inner, op_types=op_types):
            yield from _heads(inner)
            yield from (("", op) for op in op_types)
        case _:
            raise PassError(f"a pattern must end in a node, not in {type(term).__name__.lower()}")


def _largest(term: Term | None) -> frozenset[object]:
    """The nodes of the largest form of a term."""
    match term:
        case Output(node=node):
            return frozenset[object]([node]).union(*map(_largest, node.inputs))
        case Alternatives(options=options):
            return max(map(_largest, options), key=len)
        case Associative(parts=parts):
            tree = frozenset[object]((id(term), i) for i in range(len(parts) - 1))
            return tree.union(*map(_largest, parts))
        case Through(inner=inner) | Constrained(inner=inner):
            return _largest(inner)
        case _:
            return frozenset()


def _certain(term: Term) -> Iterator[Output | Associative]:
    """The nodes that are there in every form of the pattern."""
    match term:
        case Output(node=node):
            yield term
            for inner in node.inputs:
                if inner is not None:
                    yield from _certain(inner)
        case Associative(parts=parts):
            yield term
            for part in parts:
                yield from _certain(part)
        case Through(inner=inner) | Constrained(inner=inner):
            yield from _certain(inner)
        case _:
            return


def _required(term: Output | Associative) -> frozenset[OpKey]:
    if isinstance(term, Associative):
        return frozenset([("", term.op_type)])
    return frozenset((term.node.domain, op) for op in term.node.op_types)


def trace(match: Callable[..., Any], owner: str) -> Pattern:
    """Run `match(op, …)` with one capture per parameter; a default of None makes a capture optional."""
    arguments: list[Term] = []
    for parameter in list(inspect.signature(match).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            arguments.append(Many(parameter.name))
        else:
            arguments.append(Capture(parameter.name, optional=parameter.default is None))
    with blamed(owner, match):
        result = match(Op(), *arguments)
    outputs = result if isinstance(result, tuple) else (result,)
    if not outputs or not all(isinstance(o, Term) for o in outputs):
        found = "nothing" if result is None else repr(result)
        raise PassError(
            f"{owner!r}, match at {defined_at(match)}: it returned {found}, not what `op` made",
            hint="is a `return` missing?",
        )
    pattern = Pattern(outputs)
    with blamed(owner, match):
        assert pattern.anchors, "a pattern ends in a node"
    return pattern
