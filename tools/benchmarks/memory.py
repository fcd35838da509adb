"""Memory of training steps against torch: every contender in a process of its own, counted alike.

    python -m fuseline.tools.benchmarks.memory [--parts peak,growth,lengths,capacity,time]
        [--cases bert-4x256,…] [--contenders plain,eager,…] [--batches 8,16] [--graphs FOLDER]
        [--results FILE] [--table FILE]

Peaks are bytes taken from malloc during one step after warm-up, over what was there before it: gradients
count, parameters and moments do not. They are the same at every run, unlike times, for which processes take
turns. What was measured before is kept in FILE, and everything in it is judged: exit 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from fuseline.engine.files import write_text
from fuseline.kernels.allocations import preloaded
from fuseline.tools.benchmarks.memory_bars import bars
from fuseline.tools.benchmarks.memory_cases import (
    ARENA,
    DEFAULT,
    MEMORY_CASES,
    OURS,
    RACES,
    TORCH,
    counted_as,
)
from fuseline.tools.campaigns import stock
from fuseline.tools.console import console

__all__ = ["main"]

_MB = 1e6
_CAPACITY = 4_000_000_000
_WORKER = [sys.executable, "-m", "fuseline.tools.benchmarks.memory_worker"]
Results = dict[str, dict[str, Any]]


class Bench:
    """Runs workers; the graphs of all cases are made once, in one folder."""

    def __init__(self, graphs: Path, options: argparse.Namespace) -> None:
        self._graphs = ["--graphs", str(graphs)]
        self._options = options

    def worker(self, case: str, contender: str, batch: int, *more: str) -> dict[str, Any]:
        """What a worker prints; a failure is a result too."""
        done = subprocess.run(
            [*_WORKER, case, contender, str(batch), *more, *self._graphs],
            env={**os.environ, **preloaded()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:200]}
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def growth(self, case: str, contender: str) -> dict[str, dict[str, Any]]:
        """By how much a step makes a process grow, here and in an environment with stock onnxruntime."""
        program = ["-m", "fuseline.tools.benchmarks.memory_growth"]
        with tempfile.TemporaryDirectory(prefix="fuseline-memory-") as name:
            folder = Path(name)
            save = [*_WORKER, case, contender, "8", "--save", name, *self._graphs]
            subprocess.run(save, check=True, stdout=subprocess.DEVNULL)
            here = [sys.executable, *program, name]
            done = subprocess.run(here, check=True, capture_output=True, text=True)
            packages = folder / "packages"
            packages.mkdir()
            there = stock.run_there(stock.DEFAULT, [*program, folder], stock.variables(packages))
        return {f"{contender}-here": json.loads(done.stdout), f"{contender}-stock": there}

    def capacity(self, case: str, contender: str) -> dict[str, Any]:
        """The largest batch that was really run within 4 GB, from the slope between two small ones."""
        few, many = (self.worker(case, contender, batch, "--once").get("bytes", 0) for batch in (16, 64))
        slope = (many - few) / 48
        batch = int(16 + (_CAPACITY - few) / slope)
        while True:
            found = self.worker(case, contender, batch, "--once")
            if "failed" in found or found["bytes"] <= _CAPACITY:
                return {**found, "batch": batch}
            batch = min(batch - 1, int(batch * _CAPACITY / found["bytes"]))

    def race(self, case: str, contenders: Sequence[str]) -> dict[str, float]:
        """Seconds of a step of each, in processes that take turns: the median of their turns."""
        running = {
            name: subprocess.Popen(
                [*_WORKER, case, name, "8", "--turns", *self._graphs],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for name in contenders
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(self._options.rounds + 1):
            for name, process in running.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("3\n")
                process.stdin.flush()
                seconds = float(process.stdout.readline())
                if turn:
                    times[name].append(seconds)
        for process in running.values():
            process.communicate()
        return {name: median(values) for name, values in times.items()}

    def measure(self, part: str, case: str) -> Iterator[Results]:
        """What a part finds out about a case, piece by piece, by `part case batch contender`."""
        asked = self._options.contenders.split(",") if self._options.contenders else []
        if part == "time":
            found = self.race(case, asked or RACES.get(case, []))
            yield {f"time {case} 8 {name}": {"seconds": seconds} for name, seconds in found.items()}
        elif part == "growth":
            for name in asked or ["plain", "layers-early"]:
                yield {f"growth {case} 8 {n}": row for n, row in self.growth(case, name).items()}
        elif part == "lengths":
            steps = str(self._options.steps)
            for name in asked or [DEFAULT, "plain"]:
                yield {f"lengths {case} 8 {name}": self.worker(case, name, 8, "--lengths", steps)}
        elif part == "capacity":
            for name, who in {"eager": "eager", "sdpa": "sdpa", "ours": "layers-early"}.items():
                if not asked or name in asked:
                    yield {f"capacity {case} 0 {name}": self.capacity(case, who)}
        else:
            for batch in self._options.batches.split(","):
                for name in asked or [*TORCH, *OURS, DEFAULT, ARENA]:
                    yield {f"peak {case} {batch} {name}": self.worker(case, name, int(batch))}


_HEAD = ["model", "batch", "contender", "peak MB", "predicted", "scratch", "× torch sdpa", "ms a step"]


def table(found: Results) -> list[list[str]]:
    """The rows of the peaks, with the times of those that raced."""
    lines = []
    for key, row in found.items():
        part, case, batch, contender = key.split()
        if part != "peak":
            continue
        base = found.get(f"peak {case} {batch} sdpa", {}).get("bytes")
        seconds = found.get(f"time {case} {batch} {contender}", {}).get("seconds")
        peak = row.get(counted_as(contender))
        lines.append(
            [
                case,
                batch,
                contender,
                row["failed"] if peak is None else f"{peak / _MB:.1f}",
                f"{row['predicted'] / _MB:.1f}" if "predicted" in row else "",
                f"{row['scratch'] / _MB:.1f}" if "scratch" in row else "",
                f"{peak / base:.2f}" if base and peak is not None else "",
                f"{seconds * 1e3:.0f}" if seconds else "",
            ]
        )
    return lines


def show(found: Results, file: Path | None) -> bool:
    """Print the peaks and the bars; whether all of them hold."""
    lines = table(found)
    printed = Table(*_HEAD, title="peak memory of a training step", title_justify="left")
    for line in lines:
        printed.add_row(*line)
    console.print(printed)
    if file is not None:
        marks = ["| " + " | ".join(line) + " |" for line in (_HEAD, ["---"] * len(_HEAD), *lines)]
        write_text(file, "\n".join(marks) + "\n")
    judged = list(bars(found))
    for bar in judged:
        mark = "holds " if bar.holds else "MISSED"
        console.print(f"{mark} {bar.value:.3f} ≤ {bar.limit:.3f}  {bar.text}")
    return all(bar.holds for bar in judged)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--parts", default="peak,growth,lengths,capacity,time")
    parser.add_argument("--cases", default=",".join(MEMORY_CASES))
    parser.add_argument("--contenders", default="")
    parser.add_argument("--batches", default="8,16")
    parser.add_argument("--steps", type=int, default=300, help="steps of changing lengths")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each process in a race")
    parser.add_argument("--results", type=Path, help="keep what is found, and judge all that was kept")
    parser.add_argument("--graphs", type=Path, help="keep the graphs of the cases for the next time")
    parser.add_argument("--table", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    kept = options.results
    found: Results = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else {}
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="fuseline-graphs-")
        graphs = options.graphs or Path(stack.enter_context(made))
        graphs.mkdir(parents=True, exist_ok=True)
        bench = Bench(graphs, options)
        for part in filter(None, options.parts.split(",")):
            for case in options.cases.split(","):
                if part in ("lengths", "capacity") and case != "bert-4x256":
                    continue
                for rows in bench.measure(part, case):
                    found |= rows
                    console.print(*(f"{key}: {row}" for key, row in rows.items()), sep="\n")
                    if kept:
                        write_text(kept, json.dumps(found, indent=1))
    return 0 if show(found, options.table) else 1


if __name__ == "__main__":
    sys.exit(main())
