"""All contenders on one subject: time in turns, memory in processes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuseline.tools.measuring.contenders import OURS, Contenders, check_agreement
from fuseline.tools.measuring.intervals import Interval, interval, ratios
from fuseline.tools.measuring.peak import peak_of
from fuseline.tools.measuring.subject import Subject
from fuseline.tools.measuring.timing import take_turns
from fuseline.tools.progress import Activity

__all__ = ["Comparison", "Row", "compare_contenders"]


@dataclass(frozen=True)
class Row:
    """One contender: seconds a step, how many times as long as ours it takes, bytes."""

    name: str
    seconds: Interval
    ratio: Interval | None
    memory: int | None

    def to_json(self) -> dict[str, Any]:
        shown = self.ratio is not None and self.ratio.meaningful
        return {
            "name": self.name,
            "seconds": self.seconds.to_json(),
            "ratio": self.ratio.to_json() if self.ratio is not None and shown else None,
            "memory_bytes": self.memory,
        }


@dataclass(frozen=True)
class Comparison:
    """The rows, ours first, and who could not take part."""

    rows: Sequence[Row]
    failed: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"contenders": [row.to_json() for row in self.rows], "failed": self.failed}


def compare_contenders(
    subject: Subject, names: Sequence[str], *, rounds: int, memory: bool, check: bool, tell: Activity
) -> Comparison:
    """Measure everybody named; one that fails to be built is left out, with the reason."""
    with Contenders(subject) as contenders:
        steps, failed = {}, {}
        for name in names:
            tell(f"preparing {name}")
            try:
                step = contenders.build(name)
                step()
            except Exception as error:
                if name == OURS:
                    raise
                failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            else:
                steps[name] = step
        if check:
            check_agreement({name: step() for name, step in steps.items()})
        tell(f"measuring {rounds} rounds")
        samples = take_turns(steps, rounds, after_round=lambda done: tell.count(done, rounds))
    rows = []
    for name, values in samples.items():
        if memory:
            tell(f"measuring the memory of {name}")
        ratio = ratios(values, samples[OURS]) if name != OURS else None
        rows.append(Row(name, interval(values), ratio, peak_of(subject, name) if memory else None))
    return Comparison(rows, failed)
