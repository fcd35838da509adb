"""Hunks that do the same in many layers: equal but for names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fuseline.engine.diff.layout import Entry
from fuseline.engine.diff.snapshot import NodeInfo
from fuseline.engine.graph_text import attributes_text

__all__ = ["Hunk", "together"]


@dataclass(frozen=True)
class Hunk:
    """A run of changes, and all the places where the same happens; the first is the one shown."""

    start: int
    entries: Sequence[Entry]
    places: tuple[str, ...]


def together(hunks: Sequence[tuple[int, list[Entry]]], scalars: Mapping[str, str]) -> list[Hunk]:
    """Equal hunks as one, in the order of their first."""
    groups: dict[Hashable, list[tuple[int, list[Entry]]]] = {}
    for start, entries in hunks:
        groups.setdefault(_signature(entries, scalars), []).append((start, entries))
    return [
        Hunk(*alike[0], tuple(_place(start, entries) for start, entries in alike))
        for alike in groups.values()
    ]


def _signature(entries: Sequence[Entry], scalars: Mapping[str, str]) -> Hashable:
    """What changes, with values called by the order in which they appear; a number stays what it is."""
    names: dict[str, int] = {}

    def called(name: str) -> Hashable:
        return scalars[name] if name in scalars else names.setdefault(name, len(names)) if name else None

    def of(node: NodeInfo) -> Hashable:
        return (
            node.op,
            tuple(called(n) for n in node.inputs),
            tuple(called(n) for n in node.outputs),
            node.types,
            attributes_text(node.attributes),
            # What is inside a branch is not compared: such nodes are alike only if they are one.
            node.name if node.graphs else "",
        )

    changed = [e for e in entries if e.kind != "same"]
    return tuple((e.kind, of(e.node), of(e.change.before) if e.change is not None else None) for e in changed)


def _place(start: int, entries: Sequence[Entry]) -> str:
    """The torch module of the first change, or where in the graph it is."""
    modules = (e.node.module for e in entries if e.kind != "same" and e.node.module)
    return next(modules, f"line {start + 1}")
