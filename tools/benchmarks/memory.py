"""Peak memory of training steps against torch: every contender in a process of its own, counted alike.

    python -m fuseline.tools.benchmarks.memory [--cases bert-4x256,…] [--contenders plain,eager,…]
                                               [--batches 8,16] [--lengths 300] [--table FILE]

Peaks are bytes taken from malloc during one step after warm-up, over what was there before it: gradients
count, parameters and moments do not. They are the same at every run, unlike times, which are rough here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from fuseline.kernels.allocations import preloaded
from fuseline.tools.benchmarks.memory_cases import MEMORY_CASES, OURS, TORCH
from fuseline.tools.console import console

__all__ = ["main"]

_MB = 1e6
Row = tuple[str, int, str, dict[str, Any]]


def worker(case: str, contender: str, batch: int, *more: str) -> dict[str, Any]:
    """What a worker prints; a failure is a result too."""
    command = [sys.executable, "-m", "fuseline.tools.benchmarks.memory_worker", case, contender, str(batch)]
    done = subprocess.run(
        [*command, *more],
        env={**os.environ, **preloaded()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _cells(case: str, batch: int, contender: str, found: dict[str, Any], eager: float | None) -> list[str]:
    if "failed" in found:
        return [case, str(batch), contender, found["failed"], "", "", "", ""]
    predicted = found.get("predicted")
    return [
        case,
        str(batch),
        contender,
        f"{found['bytes'] / _MB:.1f}",
        f"{predicted / _MB:.1f}" if predicted else "",
        f"{found['scratch'] / _MB:.1f}" if "scratch" in found else "",
        f"{found['bytes'] / eager:.2f}" if eager else "",
        f"{found['seconds'] * 1e3:.0f}",
    ]


_HEAD = ["model", "batch", "contender", "peak MB", "predicted", "scratch", "× torch sdpa", "ms a step"]


def show(rows: list[Row], table: Path | None) -> None:
    base = {(case, batch): found.get("bytes") for case, batch, name, found in rows if name == "sdpa"}
    lines = [_cells(case, batch, name, found, base.get((case, batch))) for case, batch, name, found in rows]
    printed = Table(*_HEAD, title="peak memory of a training step", title_justify="left")
    for line in lines:
        printed.add_row(*line)
    console.print(printed)
    if table is not None:
        marks = ["| " + " | ".join(line) + " |" for line in (_HEAD, ["---"] * len(_HEAD), *lines)]
        table.write_text("\n".join(marks) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", default=",".join(MEMORY_CASES))
    parser.add_argument("--contenders", default=",".join((*TORCH, *OURS)))
    parser.add_argument("--batches", default="8,16")
    parser.add_argument("--lengths", type=int, default=0, help="steps of changing sizes: prints the slope")
    parser.add_argument("--table", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    rows: list[Row] = []
    for case in options.cases.split(","):
        for batch in map(int, options.batches.split(",")):
            for contender in options.contenders.split(","):
                found = worker(case, contender, batch)
                console.print(f"{case} {batch} {contender}: {found}", markup=False)
                rows.append((case, batch, contender, found))
        if options.lengths:
            found = worker(case, "plain", 8, "--lengths", str(options.lengths))
            console.print(f"{case}, {options.lengths} steps of changing sizes: {found}", markup=False)
    show(rows, options.table)


if __name__ == "__main__":
    main()
