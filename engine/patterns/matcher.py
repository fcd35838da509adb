"""The matcher: backtracking over a pattern's terms, anchored at one node, bounded by the pattern's size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from fuseline.engine import constants
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op, normal_domain
from fuseline.engine.patterns.agreement import same, trees, violation
from fuseline.engine.patterns.attributes import attribute, attribute_agrees
from fuseline.engine.patterns.bindings import Bindings
from fuseline.engine.patterns.match import Failure, Match, show, widens
from fuseline.engine.patterns.pattern import Pattern
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
    describe,
)
from fuseline.engine.patterns.tracer import KIND, OPERATOR, Tracer

__all__ = ["Matcher"]

# How many ways of matching one place are looked at before the largest is taken.
WAYS = 32


class Matcher:
    """Matches one pattern at given nodes of one model.

    With `tracing` the best failure of the last attempt is kept in `failure`, and one wrong operator or value
    (a constant, an attribute, a type) does not end an attempt, so that a near miss is followed to its end.
    """

    def __init__(self, pattern: Pattern, model: Model, *, tracing: bool = False) -> None:
        self.pattern = pattern
        self.model = model
        self._bindings = Bindings()
        self._captures, self._nodes = self._bindings.captures, self._bindings.nodes
        self._values, self._extra = self._bindings.values, self._bindings.extra
        self._tracer = Tracer(model, self._bindings, active=tracing)
        self._root: ir.Node | None = None

    @property
    def failure(self) -> Failure | None:
        """The best failure of the last attempt."""
        return self._tracer.failure

    def could_match(self, present: set[tuple[str, str]]) -> bool:
        """Whether a graph with these operators can contain the pattern at all."""
        return all(not needed.isdisjoint(present) for needed in self.pattern.required)

    def at(self, root: ir.Node) -> Iterator[Match]:
        """The ways the pattern fits with its last node at `root`, found one by one."""
        self._root = root
        # An attempt that was left early leaves its bindings behind.
        self._bindings.clear()
        self._tracer.begin(root)
        for _ in itertools.islice(self._anchored(root), WAYS):
            if self._tracer.forgiven:
                self._tracer.note_forgiven()
            else:
                yield self._snapshot(root)

    def _anchored(self, root: ir.Node) -> Iterator[None]:
        first = self.pattern.outputs[0]
        for value in root.outputs:
            for _ in self._term(first, value, root):
                yield from self._others(self.pattern.outputs[1:])

    def _others(self, outputs: Sequence[Term]) -> Iterator[None]:
        """The further outputs of a pattern: bound already, or found among the users of what is bound."""
        if not outputs:
            yield
            return
        first, rest = outputs[0], outputs[1:]
        for value in self._candidates(first):
            producer = value.producer()
            assert producer is not None
            for _ in self._term(first, value, producer):
                yield from self._others(rest)

    def _candidates(self, term: Term) -> list[ir.Value]:
        bound = self._bound(term)
        if bound is not None:
            return [bound]
        known = self._bound_values(term)
        if known is None:
            return []
        users = [user for user, _ in known.uses() if self._root and user.graph is self._root.graph]
        if isinstance(term, Output):
            direct = [u for u in users if u.op_type in term.node.op_types and u not in self._nodes.values()]
            if any(self._bound(i) is known for i in term.node.inputs if i is not None):
                return [u.outputs[term.index] for u in dict.fromkeys(direct) if term.index < len(u.outputs)]
        reached = [v for u in dict.fromkeys(users) for v in u.outputs]
        deeper = [w for v in reached for u, _ in v.uses() for w in u.outputs]
        return list(dict.fromkeys([*reached, *deeper]))

    def _bound_values(self, term: Term) -> ir.Value | None:
        for child in children(term):
            value = self._bound(child) or self._bound_values(child)
            if value is not None and not value.is_initializer():
                return value
        return None

    def _bound(self, term: Term) -> ir.Value | None:
        match term:
            case Capture(name=name) | Constrained(inner=Capture(name=name)):
                value = self._captures.get(name)
                return value if isinstance(value, ir.Value) else None
            case Output(node=node, index=index) if node in self._nodes:
                return self._nodes[node].outputs[index]
        return self._values.get(term)

    def _snapshot(self, root: ir.Node) -> Match:
        nodes = dict.fromkeys([*self._nodes.values(), *self._extra])
        outputs = []
        for position, term in enumerate(self.pattern.outputs):
            value = self._bound(term)
            outputs.append(value if value is not None and position else root.outputs[_index(term)])
        return Match(
            root,
            tuple(nodes),
            tuple(outputs),
            dict(self._captures),
            {t.label: n for t, n in self._nodes.items() if t.label},
            frozenset(n for t, n in self._nodes.items() if t.shared),
        )

    # -- one method per kind of term; each yields once per way of matching, its bindings in place

    def _term(self, term: Term | None, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        match term:
            case None:
                if value is None:
                    yield
                else:
                    self._tracer.fail(KIND, user, None, value)
            case Capture():
                yield from self._capture(term, value, user)
            case Constant():
                yield from self._constant(term, value, user)
            case Output():
                yield from self._output(term, value, user)
            case Constrained():
                yield from self._constrained(term, value, user)
            case _:
                yield from self._composite(term, value, user)

    def _composite(self, term: Term, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        """A term that several nodes may make up; it stands for one value, however often it is written."""
        if term in self._values:
            if self._values[term] is value:
                yield
            else:
                self._tracer.fail(KIND, user, term, value)
            return
        match term:
            case Alternatives():
                ways = self._alternatives(term, value, user)
            case Through():
                ways = self._through(term, value, user)
            case Associative():
                ways = self._associative(term, value, user)
            case _:
                raise TypeError(f"{type(term).__name__} cannot stand here in a pattern")
        for _ in ways:
            self._values[term] = value
            yield
            del self._values[term]

    def _capture(self, term: Capture, value: Any, user: ir.Node) -> Iterator[None]:
        if term.name in self._captures:
            if same(self.model, self._captures[term.name], value):
                yield
            else:
                self._tracer.fail(KIND, user, term, value)
            return
        if value is None and not term.optional:
            self._tracer.fail(KIND, user, term, value)
            return
        self._captures[term.name] = value
        yield
        del self._captures[term.name]

    def _constant(self, term: Constant, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        found = constants.constant(self.model, value, at_most=max(16, term.value.size))
        if found is None:
            self._tracer.fail(KIND, user, term, value)
        elif term.agrees(found) and (found.size != 1 or value is None or not widens(value, user)):
            yield
        else:
            yield from self._tracer.forgive(user, describe(term), show(self.model, value))

    def _constrained(self, term: Constrained, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        wrong = violation(self.model, term, value)
        for _ in self._capture(term.inner, value, user):
            if wrong is None:
                yield
            else:
                yield from self._tracer.forgive(user, describe(term), wrong)

    def _alternatives(self, term: Alternatives, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        for position, option in enumerate(term.options):
            if term.pick is None:
                yield from self._term(option, value, user)
                continue
            for _ in self._term(option, value, user):
                self._captures[term.pick] = position
                yield
                del self._captures[term.pick]

    def _through(self, term: Through, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        skipped: list[ir.Node] = []
        while True:
            self._extra.extend(skipped)
            yield from self._term(term.inner, value, user)
            del self._extra[len(self._extra) - len(skipped) :]
            node = value.producer() if value is not None else None
            if node is None or not is_op(node, *term.op_types) or len(skipped) == term.at_most:
                return
            if not self._in_reach(node):
                return
            skipped.append(node)
            value, user = node.inputs[0], node

    def _associative(self, term: Associative, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        for nodes, leaves in trees(term, value, self._in_reach):
            self._extra.extend(nodes)
            for order in itertools.permutations(leaves):
                yield from self._sequence(list(zip(term.parts, order, strict=True)), nodes[0])
            del self._extra[len(self._extra) - len(nodes) :]

    def _output(self, term: Output, value: ir.Value | None, user: ir.Node) -> Iterator[None]:
        node = value.producer() if value is not None else None
        if node is None or value is None:
            self._tracer.fail(KIND, user, term, value)
            return
        bound = self._nodes.get(term.node)
        if bound is not None:
            if bound is node and value.index() == term.index:
                yield
            else:
                self._tracer.fail(KIND, user, term, value)
            return
        if (
            node.op_type not in term.node.op_types
            or normal_domain(node.domain) != term.node.domain
            or value.index() != term.index
            or not self._in_reach(node)
        ):
            self._tracer.fail(OPERATOR, node if node.op_type not in term.node.op_types else user, term, value)
            if (
                len(node.inputs) == len(term.node.inputs)
                and value.index() == term.index
                and self._in_reach(node)
            ):
                for _ in self._tracer.overlook(node, describe(term), show(self.model, value)):
                    yield from self._inputs(term.node, node)
            return
        self._nodes[term.node] = node
        for _ in self._own_attributes(node):
            for _ in self._attributes(list(term.node.attributes.items()), node):
                yield from self._inputs(term.node, node)
        del self._nodes[term.node]

    def _in_reach(self, node: ir.Node) -> bool:
        """A match stays within one graph: an outer node cannot be replaced from a body that reads it."""
        return self._root is not None and node.graph is self._root.graph

    def _own_attributes(self, node: ir.Node) -> Iterator[None]:
        """An attribute of the function around is what each call says: nothing can be made of such a node."""
        given = next((a for a in node.attributes.values() if a.is_ref()), None)
        if given is None:
            yield
        else:
            found = f"{given.name} = @{given.ref_attr_name}, which each call of the function gives"
            yield from self._tracer.forgive(node, f"a value of {given.name}", found)

    def _attributes(self, conditions: list[tuple[str, Any]], node: ir.Node) -> Iterator[None]:
        if not conditions:
            yield
            return
        (name, expected), rest = conditions[0], conditions[1:]
        found = attribute(self.model, node, name)
        if isinstance(expected, Capture):
            for _ in self._capture(Capture(expected.name, optional=True), found, node):
                yield from self._attributes(rest, node)
        elif attribute_agrees(node, name, expected, found):
            yield from self._attributes(rest, node)
        else:
            wanted = "another value" if callable(expected) else repr(expected)
            for _ in self._tracer.forgive(node, f"{name} = {wanted}", f"{name} = {found!r}"):
                yield from self._attributes(rest, node)

    def _inputs(self, term: NodeTerm, node: ir.Node) -> Iterator[None]:
        terms, values = list(term.inputs), list(node.inputs)
        if terms and isinstance(terms[-1], Many):
            fixed = len(terms) - 1
            if len(values) < fixed:
                self._tracer.fail(KIND, node, terms[-1], None)
                return
            rest = Capture(terms.pop().name)  # type: ignore[union-attr]
            for _ in self._capture(rest, tuple(values[fixed:]), node):
                yield from self._sequence(list(zip(terms, values[:fixed], strict=True)), node)
            return
        width = max(len(terms), len(values))
        terms += [None] * (width - len(terms))
        values += [None] * (width - len(values))
        yield from self._sequence(_hardest_first(zip(terms, values, strict=True)), node)
        if term.commutative:
            yield from self._sequence(_hardest_first(zip(terms, reversed(values), strict=True)), node)

    def _sequence(
        self, pairs: Sequence[tuple[Term | None, ir.Value | None]], user: ir.Node
    ) -> Iterator[None]:
        if not pairs:
            yield
            return
        for _ in self._term(*pairs[0], user):
            yield from self._sequence(pairs[1:], user)


def _hardest_first(pairs: Any) -> list[tuple[Term | None, ir.Value | None]]:
    return sorted(pairs, key=lambda pair: _HARDNESS.get(type(pair[0]), 2))


_HARDNESS: dict[type[Any], int] = {Constant: 0, Output: 1, Capture: 3, Constrained: 3}


def _index(term: Term) -> int:
    return term.index if isinstance(term, Output) else 0
