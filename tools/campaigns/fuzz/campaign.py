"""Many random graphs through the ready pipelines: nothing wrong or unloadable, no crash, right gradients.

    python -m fuseline.tools.campaigns.fuzz.campaign [--seed 0] [--count 20000] [--case SEED/INDEX]

Every finding is shrunk, printed as ONNX text and saved with its inputs. Exit 1 if there is one.
"""

from __future__ import annotations

import argparse
import collections
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime  # noqa: F401  (workers are forked: what is imported here they need not import)

import fuseline.passes  # noqa: F401
from fuseline.tools.campaigns.fuzz.cases import Case, draw_case
from fuseline.tools.campaigns.fuzz.judge import Verdict, judge
from fuseline.tools.campaigns.fuzz.report import Finding, save
from fuseline.tools.campaigns.fuzz.shrink import shrink
from fuseline.tools.campaigns.fuzz.training.judging import judge_training
from fuseline.tools.campaigns.fuzz.workers import Pool
from fuseline.tools.console import console

__all__ = ["campaign", "judge_task", "main"]

_PROCESSES = 2
# Of findings that look alike, so many are shrunk.
_SHRUNK_PER_SIGNATURE = 1


def judge_task(task: Any, announce: Callable[[str], None]) -> Verdict:
    """A case by its numbers, or one that shrinking has made."""
    announce("original")
    case = draw_case(*task) if isinstance(task, tuple) else task
    return judge_training(case, announce) if case.trainable else judge(case, announce)


class _Tally:
    def __init__(self) -> None:
        self.status: collections.Counter[str] = collections.Counter()
        self.fired: collections.Counter[str] = collections.Counter()
        self.findings: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        self.started = time.monotonic()

    def add(self, task: tuple[int, int], verdict: Verdict) -> None:
        self.status[verdict.status] += 1
        self.fired.update(verdict.fired)
        if verdict.found:
            self.findings.setdefault(verdict.signature, []).append(task)

    def line(self) -> str:
        seconds = time.monotonic() - self.started
        judged = sum(self.status.values()) - self.status["unusable"]
        counts = ", ".join(f"{n} {s}" for s, n in self.status.most_common())
        return f"{judged} graphs judged in {seconds:.0f} s ({judged / max(seconds, 1e-9):.0f}/s): {counts}"


def campaign(
    seed: int, count: int, folder: Path | None, *, processes: int = _PROCESSES, whole: bool = False
) -> list[Finding]:
    """Judge until `count` graphs have been judged; gives one finding of each kind, shrunk unless `whole`."""
    pool = Pool(judge_task, processes)
    tally = _Tally()
    tasks = ((seed, index) for index in range(10**9))
    first: dict[tuple[str, str, str], tuple[tuple[int, int], Verdict]] = {}
    try:
        for task, verdict in pool.run(tasks):
            tally.add(task, verdict)
            if verdict.found and verdict.signature not in first:
                first[verdict.signature] = task, verdict
                judged = sum(tally.status.values()) - tally.status["unusable"]
                console.print(f"graph {judged} ({task[0]}/{task[1]}): {_title(verdict)}")
            if sum(tally.status.values()) - tally.status["unusable"] >= count:
                break
    finally:
        pool.close()
    console.print(tally.line())
    console.print(f"{len(tally.fired)} passes changed something")
    times = {signature: len(tasks) for signature, tasks in tally.findings.items()}
    if whole:
        return [Finding(draw_case(*task), verdict, times[s]) for s, (task, verdict) in first.items()]
    return [_shrunk(task, verdict, times[s], folder) for s, (task, verdict) in first.items()]


def _title(verdict: Verdict) -> str:
    return f"{verdict.status} by {verdict.blame or '?'}: {verdict.message[:200]}"


def _shrunk(task: tuple[int, int], verdict: Verdict, times: int, folder: Path | None) -> Finding:
    pool = Pool(judge_task, 1)
    try:
        case, verdict = shrink(draw_case(*task), verdict, pool.ask)
    finally:
        pool.close()
    finding = Finding(case, verdict, times)
    if folder is not None:
        save(finding, folder)
    console.print(f"\n{finding}", highlight=False)
    return finding


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--case", help="one case by its numbers, as a finding names it")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/fuzz"), help="folder for findings")
    parser.add_argument("--whole", action="store_true", help="do not shrink what is found")
    arguments = parser.parse_args()
    if arguments.case:
        seed, index = map(int, arguments.case.split("/"))
        return _replay(draw_case(seed, index), arguments.output)
    findings = campaign(arguments.seed, arguments.count, arguments.output, whole=arguments.whole)
    for finding in sorted(findings, key=lambda f: -f.times):
        console.print(f"{finding.times:5} × {_title(finding.verdict)}  ({finding.case.label})")
    console.print(f"{len(findings)} kinds of findings")
    return 1 if findings else 0


def _replay(case: Case, folder: Path) -> int:
    pool = Pool(judge_task, 1)
    try:
        verdict = pool.ask(case)
        if not verdict.found:
            console.print(f"{case.label}: {verdict.status} {verdict.message}")
            return 0
        case, verdict = shrink(case, verdict, pool.ask)
    finally:
        pool.close()
    finding = Finding(case, verdict, 1)
    save(finding, folder)
    console.print(str(finding), highlight=False)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
