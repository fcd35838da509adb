"""Differences from a record that are meant: classes with a reason each, in replay_justified.yaml.

A graph that differs is justified if classes that are meant for it cover every line that went or came, and if
it has not become larger, unless one of them says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Justification", "justified_by", "load"]

LIST = Path(__file__).with_name("replay_justified.yaml")


@dataclass(frozen=True)
class Justification:
    """One class of differences: the cases and lines that it covers, and why they are meant."""

    name: str
    reason: str
    cases: re.Pattern[str]
    lines: tuple[re.Pattern[str], ...]
    grows: bool = False
    operands: Mapping[str, str] = field(default_factory=dict)
    """Operator → the one that makes in its place what others read: such readers have not changed."""

    @classmethod
    def parse(cls, given: dict[str, Any]) -> Justification:
        patterns = tuple(re.compile(line) for line in given["lines"])
        return cls(
            given["name"],
            given["reason"],
            re.compile(given.get("cases", "")),
            patterns,
            bool(given.get("grows", False)),
            dict(given.get("operands", {})),
        )

    def covers(self, line: str) -> bool:
        return any(pattern.search(line) for pattern in self.lines)


def load(path: Path = LIST) -> list[Justification]:
    return [Justification.parse(item) for item in yaml.safe_load(path.read_text())]


def justified_by(
    case: str, lines: Sequence[str], classes: Iterable[Justification]
) -> tuple[set[str], list[str]]:
    """The names of the classes that cover lines of a case, and the lines that none covers."""
    meant = [found for found in classes if found.cases.search(case)]
    used: dict[str, Justification] = {}
    open_lines: list[str] = []
    for line in _without_readers(lines, meant):
        found = next((c for c in meant if c.covers(line)), None)
        if found is None:
            open_lines.append(line)
        else:
            used[found.name] = found
    came, gone = (sum(line[0] in signs for line in lines) for signs in ("+>", "-<"))
    if came > gone and not any(found.grows for found in used.values()):
        open_lines.append(f"{came - gone} lines more than recorded, which no class allows")
    return set(used), open_lines


def _without_readers(lines: Sequence[str], meant: Iterable[Justification]) -> list[str]:
    """The lines but for pairs that differ only in the operator that made an operand."""
    operands = {old: new for found in meant for old, new in found.operands.items()}
    if not operands:
        return list(lines)
    made = re.compile("‹(" + "|".join(map(re.escape, operands)) + ")›")
    came = Counter(line[1:] for line in lines if line[0] in "+>")
    paired: Counter[str] = Counter()
    left = []
    for line in lines:
        renamed = made.sub(lambda found: f"‹{operands[found[1]]}›", line[1:])
        if line[0] in "-<" and renamed != line[1:] and came[renamed] > paired[renamed]:
            paired[renamed] += 1
        else:
            left.append(line)
    for line in [line for line in left if line[0] in "+>"]:
        if paired[line[1:]]:
            paired[line[1:]] -= 1
            left.remove(line)
    return left
