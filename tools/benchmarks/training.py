"""Training steps against torch eager, SDPA and torch.compile, and against stock ONNX Runtime training.

    python -m fuseline.tools.benchmarks.training [--only TEXT] [--threads N] [--rounds N] [--no-compile]
        [--without PASS]

A step is forward, backward and AdamW, fp32, on one batch; all variants take turns in one process and
medians are compared. Torch uses its fused AdamW. Exit 1 when a configuration misses its goal, which is a
ratio to the fastest torch.
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from rich.table import Table

from fuseline.engine.execution.sessions import cache
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.exporters import export
from fuseline.tools.benchmarks.training_cases import CASES, TrainingCase
from fuseline.tools.console import console, print_json
from fuseline.tools.measuring.steps import Step, native_step, stock_step, torch_step
from fuseline.tools.measuring.timing import interleave

__all__ = ["main"]

_TOLERANCE = 1e-3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="configurations whose name contains one of these, comma-separated"
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--without", action="append", default=[], help="measure fuseline less this pass too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    wanted = arguments.only.split(",")
    rows = []
    for case in CASES:
        if any(text in case.name for text in wanted):
            rows.append(_measure(case, arguments))
            if not arguments.json:
                console.print(_line(rows[-1]))
    if arguments.json:
        print_json({"threads": arguments.threads, "cases": rows})
    else:
        console.print(_table(rows))
    missed = [row for row in rows if row["ratio"] < row["goal"]]
    for row in missed:
        sys.stderr.write(f"missed: {row['case']} reaches {row['ratio']:.2f} of {row['goal']:.2f}\n")
    return 1 if missed else 0


def _measure(case: TrainingCase, arguments: argparse.Namespace) -> dict[str, Any]:
    steps = dict(_variants(case, arguments))
    losses = {name: float(step()["loss"]) for name, step in steps.items()}
    reference = losses["torch eager"]
    for name, loss in losses.items():
        if abs(loss - reference) > _TOLERANCE * abs(reference):
            raise SystemExit(f"{case.name}: {name} has the loss {loss}, torch eager {reference}")
    seconds = interleave(steps, rounds=arguments.rounds)
    _release(steps)
    best = min((s, n) for n, s in seconds.items() if n.startswith("torch"))
    return {
        "case": case.name,
        "goal": case.goal,
        "ms": {name: round(1000 * s, 1) for name, s in seconds.items()},
        "best torch": best[1],
        "ratio": round(best[0] / seconds["fuseline"], 3),
        "ratio to stock": round(seconds["stock onnxruntime"] / seconds["fuseline"], 3),
    }


def _release(steps: dict[str, Step]) -> None:
    """Give the memory of this configuration back before the next one is built."""
    steps.clear()
    cache.clear()
    torch.compiler.reset()
    gc.collect()


def _variants(case: TrainingCase, arguments: argparse.Namespace) -> Iterator[tuple[str, Step]]:
    model = case.build()
    batch = case.inputs(model)
    exported = export(model, train=True, check=False)
    yield "fuseline", _native(exported, case.pipeline, batch, arguments.threads)
    for left_out in arguments.without:
        made = _native(exported, case.pipeline, batch, arguments.threads, [left_out])
        yield f"fuseline without {left_out}", made
    yield "stock onnxruntime", _stock(exported, batch, arguments.threads)
    yield "torch eager", _torch(copy.deepcopy(model), batch)
    if type(model)._supports_sdpa:
        yield "torch sdpa", _torch(case.build("sdpa"), batch)
    if not arguments.no_compile:
        source = case.build("sdpa" if type(model)._supports_sdpa else "eager")
        yield "torch compile", _torch(source, batch, compiled=True)


def _native(
    exported: Model, pipeline: str, batch: dict[str, Any], threads: int, left_out: Sequence[str] = ()
) -> Step:
    model = Pipeline.resolve(f"{pipeline},insert-optimizer").run(exported, disable=left_out).model
    return native_step(model, batch, threads)


def _stock(exported: Model, batch: dict[str, Any], threads: int) -> Step:
    """It computes all rows, as ONNX Runtime would by itself."""
    model = Pipeline.resolve("training-stock").run(exported, disable=["select-labelled"]).model
    return stock_step(model, batch, threads)


def _torch(model: Any, batch: dict[str, Any], *, compiled: bool = False) -> Step:
    forward = torch.compile(model) if compiled else model
    return torch_step(lambda: forward(**batch).loss, model.parameters())


def _line(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {ms:.0f}" for name, ms in row["ms"].items())
    return f"{row['case']}: {row['ratio']:.2f}× the best torch (goal {row['goal']:.2f}); ms: {times}"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="One training step (medians of interleaved runs)")
    for column in ("configuration", "fuseline ms", "best torch", "ms", "ratio", "goal", "to stock ORT"):
        table.add_column(column)
    for row in rows:
        ms = row["ms"]
        table.add_row(
            row["case"],
            f"{ms['fuseline']:.0f}",
            row["best torch"],
            f"{ms[row['best torch']]:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['goal']:.2f}",
            f"{row['ratio to stock']:.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
