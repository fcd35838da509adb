"""Every native kernel against ONNX Runtime's own, torch's and the memory's bandwidth, in one interleaved run.

    python -m fuseline.tools.benchmarks.kernels [--threads N] [--only TEXT] [--json] [--cpu-time]

A kernel must not lose to what it replaces, a tie within 3 % aside; AdamW must reach 0.9 of the bandwidth and,
when both clip, 1.2× torch; a product in bf16 must not lose to torch's, and at the widths of BERT-base it must
reach 0.8 of what the instruction can do. What misses is measured once more, for longer, and the quick quarter
of the rounds counts: in some rounds both threads of a variant, whoever's it is, share one core and take twice
the time.
With --cpu-time everything runs on one thread and processor time is measured:
for a machine that is busy with something else.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch

from fuseline.kernels import instruction_set, multiplies_bf16, require
from fuseline.tools.benchmarks.kernel_cases import Case, row_cases
from fuseline.tools.benchmarks.kernel_norms import norm_cases
from fuseline.tools.benchmarks.kernel_optimizer import Memory, optimizer_cases
from fuseline.tools.benchmarks.kernel_products import product_cases
from fuseline.tools.benchmarks.peak import Bf16Peak
from fuseline.tools.console import console, print_json
from fuseline.tools.measuring.timing import interleave, lower_quartile

__all__ = ["main"]

_BANDWIDTH_GOAL = 0.9
_CLIPPED_GOAL = 1.2
_OPTIMIZER_SIZES = (11_500_000, 60_000_000)
_TIE = 0.97
_BF16 = "bf16"
_PEAK_GOAL = 0.8
_PEAK_CASES = "bf16 linear "
_PEAK_WIDTHS = ("×768→768", "×768→3072", "×3072→768")
_ROUNDS, _ROUNDS_IN_DOUBT = 9, 45


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, processor time")
    arguments = parser.parse_args()
    require()
    threads = 1 if arguments.cpu_time else arguments.threads
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    torch.set_num_threads(threads)
    memory, peak = Memory(), Bf16Peak(threads) if multiplies_bf16() else None
    rows = []
    if not arguments.json:
        console.print(_header(threads))
    for case in _every(threads):
        if arguments.only in case.name:
            row = _measure(case, memory, peak, clock)
            rows.append(_measure(case, memory, peak, clock, in_doubt=True) if row["missed"] else row)
            if not arguments.json:
                console.print(_line(rows[-1]))
    if arguments.json:
        print_json({"instruction_set": instruction_set(), "cases": rows})
    missed = [row["case"] for row in rows if row["missed"]]
    for name in missed:
        sys.stderr.write(f"missed: {name}\n")
    return 1 if missed else 0


def _every(threads: int) -> Iterator[Case]:
    optimizers = (optimizer_cases(size, threads) for size in _OPTIMIZER_SIZES)
    families = (norm_cases, row_cases, product_cases)
    return itertools.chain(*optimizers, *(family(threads) for family in families))


def _measure(
    case: Case, memory: Memory, peak: Bf16Peak | None, clock: Callable[[], float], *, in_doubt: bool = False
) -> dict[str, Any]:
    loops = dict(memory.variants) if case.bytes else {}
    if peak is not None and case.name.startswith(_BF16):
        loops["peak"] = peak.run
    rounds, statistic = (_ROUNDS_IN_DOUBT, lower_quartile) if in_doubt else (_ROUNDS, median)
    times = interleave({**case.variants, **loops}, rounds=rounds, clock=clock, statistic=statistic)
    seconds = {name: times[name] for name in case.variants}
    ours = seconds["fuseline"]
    row: dict[str, Any] = {"case": case.name, "milliseconds": {n: s * 1e3 for n, s in seconds.items()}}
    row["speedup"] = {name: value / ours for name, value in seconds.items() if name != "fuseline"}
    if case.bytes:
        row["of_limit"] = case.bytes / ours / memory.bandwidth(times)
    if case.flops:
        row["gflops"] = case.flops / ours / 1e9
    if peak is not None and "peak" in times:
        row["of_limit"] = case.flops / ours / peak.flops(times["peak"])
    row["missed"] = _missed(case.name, row)
    return row


def _missed(name: str, row: dict[str, Any]) -> bool:
    if name.startswith("AdamW 60"):
        slow = "clipped" in name and row["speedup"]["torch"] < _CLIPPED_GOAL
        return bool(slow or row["of_limit"] < _BANDWIDTH_GOAL)
    if name.startswith(_BF16):
        wide = name.startswith(_PEAK_CASES) and name.endswith(_PEAK_WIDTHS)
        if row["speedup"]["torch"] < _TIE or (wide and row["of_limit"] < _PEAK_GOAL):
            return True
    return bool(row["speedup"].get("onnxruntime", 1.0) < _TIE)


_COLUMNS = ("fuseline ms", "onnxruntime ms", "torch ms", "× onnxruntime", "× torch", "of limit", "GFLOP/s")


def _header(threads: int) -> str:
    title = f"{threads} threads, {instruction_set()}"
    return f"{title:44}" + "".join(f"{column:>15}" for column in _COLUMNS)


def _line(row: dict[str, Any]) -> str:
    times, speedup = row["milliseconds"], row["speedup"]
    cells = [
        f"{times['fuseline']:.3f}",
        *(f"{times[n]:.3f}" if n in times else "" for n in ("onnxruntime", "torch")),
        *(f"{speedup[n]:.2f}" if n in speedup else "" for n in ("onnxruntime", "torch")),
        f"{row['of_limit']:.2f}" if "of_limit" in row else "",
        f"{row['gflops']:.0f}" if "gflops" in row else "",
    ]
    return f"{row['case']:44}" + "".join(f"{cell:>15}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
