"""How far attempts get: the best failure, followed past one wrong value or operator to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.patterns.bindings import Bindings
from fuseline.engine.patterns.match import Failure, show
from fuseline.engine.patterns.terms import Capture, Term, describe

__all__ = ["KIND", "OPERATOR", "VALUE", "Tracer"]

# A mismatch of a value says more than one of an operator, which says more than one of a kind.
VALUE, OPERATOR, KIND = 2, 1, 0


class Tracer:
    """Notes failures while a matcher tries; idle unless active."""

    def __init__(self, model: Model, bindings: Bindings, *, active: bool) -> None:
        self.model = model
        self.bindings = bindings
        self.active = active
        self.failure: Failure | None = None
        self.forgiven: list[tuple[ir.Node, str, str]] = []
        self._best: tuple[int, int] = (-1, -1)
        self._root: ir.Node | None = None

    def begin(self, root: ir.Node) -> None:
        self._root, self.failure, self._best = root, None, (-1, -1)
        self.forgiven.clear()

    def fail(self, kind: int, node: ir.Node, term: Term | None, value: Any) -> None:
        """The term does not fit the value, which the node reads (or makes)."""
        if self.active:
            shown = show(self.model, value) if value is None or isinstance(value, ir.Value) else repr(value)
            self._note(kind, node, self._expectation(term), shown)

    def forgive(self, node: ir.Node, expected: str, found: str) -> Iterator[None]:
        """A wrong value: the end of an ordinary attempt; when tracing, one is noted and passed over."""
        if self.active:
            self._note(VALUE, node, expected, found)
            yield from self.overlook(node, expected, found)

    def overlook(self, node: ir.Node, expected: str, found: str) -> Iterator[None]:
        """When tracing, what is wrong at a node is passed over, once in an attempt."""
        if not self.active or self.forgiven:
            return
        self.forgiven.append((node, expected, found))
        yield
        self.forgiven.pop()

    def note_forgiven(self) -> None:
        """Everything fitted but what was passed over."""
        if self._root is None:
            return
        node, expected, found = self.forgiven[0]
        matched = self.bindings.matched
        if (matched, VALUE) > self._best:
            self._best = (matched, VALUE)
            self.failure = Failure(self._root, node, matched, found, expected)

    def _expectation(self, term: Term | None) -> str:
        captured = self.bindings.captures.get(term.name) if isinstance(term, Capture) else None
        if isinstance(term, Capture) and isinstance(captured, ir.Value):
            return f"{show(self.model, captured)}, as {term.name!r} elsewhere in the pattern"
        return describe(term)

    def _note(self, kind: int, node: ir.Node, expected: str, found: str) -> None:
        score = (self.bindings.matched - len(self.forgiven), kind)
        if score <= self._best or self._root is None:
            return
        self._best = score
        if self.forgiven:
            node, expected, found = self.forgiven[0]
        self.failure = Failure(self._root, node, score[0], found, expected)
