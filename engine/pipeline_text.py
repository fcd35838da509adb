"""The text form of pipelines: `a,b{option=1},repeat{until=unchanged,at-most=10}(c,d)`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fuseline.engine.errors import PipelineError

__all__ = ["Element", "parse"]

_WORD = re.compile(r"[A-Za-z0-9_.\-]+")
_SPACE = re.compile(r"\s*")
_VALUE = re.compile(r"[^,{}()\"]+")


@dataclass
class Element:
    """One parsed element: a name, its options, and for a group its elements."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    children: list[Element] | None = None
    place: str = ""
    """File and line, if it stands in a file."""


def parse(text: str) -> list[Element]:
    parser = _Parser(text)
    elements = parser.elements()
    if parser.position < len(text):
        parser.fail("expected ',' or the end")
    return elements


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def elements(self) -> list[Element]:
        found = [self.element()]
        while self.take(","):
            found.append(self.element())
        return found

    def element(self) -> Element:
        element = Element(self.word("a pass name"))
        if self.take("{"):
            element.options = self.options()
        if self.take("("):
            element.children = self.elements()
            self.expect(")")
        return element

    def options(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        while True:
            key = self.word("an option name")
            if key in given:
                self.fail(f"option {key!r} is given twice")
            given[key] = self.value() if self.take("=") else True
            if self.take("}"):
                return given
            self.expect(",")

    def value(self) -> str:
        if self.take('"'):
            return self.quoted()
        match = _VALUE.match(self.text, self.position)
        if not match or not match.group().strip():
            self.fail("expected a value")
        self.position = match.end()
        return match.group().strip()

    def quoted(self) -> str:
        out: list[str] = []
        while self.position < len(self.text):
            char = self.text[self.position]
            self.position += 1
            if char == '"':
                return "".join(out)
            if char == "\\" and self.position < len(self.text):
                char = self.text[self.position]
                self.position += 1
            out.append(char)
        self.fail("the quoted value does not end")

    def word(self, what: str) -> str:
        self.skip_space()
        match = _WORD.match(self.text, self.position)
        if not match:
            self.fail(f"expected {what}")
        self.position = match.end()
        return match.group()

    def take(self, char: str) -> bool:
        self.skip_space()
        if self.text.startswith(char, self.position):
            self.position += 1
            return True
        return False

    def expect(self, char: str) -> None:
        if not self.take(char):
            self.fail(f"expected {char!r}")

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match
        self.position = match.end()

    def fail(self, what: str) -> NoReturn:
        pointer = " " * self.position + "^"
        raise PipelineError(
            f"malformed pipeline: {what} at column {self.position + 1}\n  {self.text}\n  {pointer}"
        )
