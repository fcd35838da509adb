"""Training steps against torch eager, SDPA and torch.compile, and against stock ONNX Runtime training.

    python -m fuseline.tools.benchmarks.training [--only TEXT] [--threads N] [--rounds N] [--no-compile]
        [--without PASS] [--bf16] [--as-people-train] [--cpu-time] [--contenders NAMES]

A step is forward, backward and AdamW on one batch; all variants take turns in one process and medians are
compared. Torch uses its fused AdamW. Exit 1 when a configuration misses its goal, which is a ratio to the
fastest torch of the same precision. With `--bf16` products are also computed in bf16: ours, and torch's under
its autocast. Nothing is dropped out and gradients are not clipped, so that the losses of all can be compared;
`--as-people-train` leaves each model its own dropout and clips at 1.0.
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from rich.table import Table
from torch import Tensor

from fuseline.engine.execution.sessions import cache
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.exporters import export
from fuseline.tools.benchmarks.training_cases import CASES, TrainingCase
from fuseline.tools.console import console, print_json
from fuseline.tools.measuring.steps import Step, native_step, stock_step, torch_step
from fuseline.tools.measuring.timing import interleave
from fuseline.tools.trainer.precision import in_precision

__all__ = ["main"]

_TOLERANCE = 1e-3
_BF16 = " bf16"
_BF16_TOLERANCE = 3e-2
_DROPOUT_TOLERANCE = 0.2
_MAX_NORM = 1.0


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
    parser.add_argument("--bf16", action="store_true", help="measure products in bf16 too")
    parser.add_argument("--as-people-train", action="store_true", help="with dropout, clipped at 1.0")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, processor time")
    parser.add_argument("--contenders", default="", help="only these of the names that are printed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.threads = 1 if arguments.cpu_time else arguments.threads
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
    missed = [row for row in rows if row["ratio"] is not None and row["ratio"] < row["goal"]]
    for row in missed:
        sys.stderr.write(f"missed: {row['case']} reaches {row['ratio']:.2f} of {row['goal']:.2f}\n")
    return 1 if missed else 0


def _measure(case: TrainingCase, arguments: argparse.Namespace) -> dict[str, Any]:
    steps = dict(_variants(case, arguments))
    losses = {name: float(step()["loss"]) for name, step in steps.items()}
    reference = losses.get("torch eager", next(iter(losses.values())))
    for name, loss in losses.items():
        tolerance = _BF16_TOLERANCE if name.endswith(_BF16) else _TOLERANCE
        tolerance = _DROPOUT_TOLERANCE if arguments.as_people_train else tolerance
        if abs(loss - reference) > tolerance * abs(reference):
            raise SystemExit(f"{case.name}: {name} has the loss {loss}, others {reference}")
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    seconds = interleave(steps, rounds=arguments.rounds, clock=clock)
    _release(steps)
    best, ratio = _against_torch(seconds, "")
    return {
        "case": case.name,
        "goal": case.goal,
        "ms": {name: round(1000 * s, 1) for name, s in seconds.items()},
        "best torch": best,
        "ratio": ratio,
        "ratio in bf16": _against_torch(seconds, _BF16)[1],
        "ratio to stock": _ratio(seconds.get("stock onnxruntime"), seconds.get("fuseline")),
    }


def _against_torch(seconds: dict[str, float], precision: str) -> tuple[str | None, float | None]:
    """The fastest torch of a precision, and how many times as fast ours is."""
    torches = [(s, n) for n, s in seconds.items() if n.startswith("torch")]
    alike = [(s, n) for s, n in torches if n.endswith(_BF16) == bool(precision)]
    best, name = min(alike, default=(None, None))
    return name, _ratio(best, seconds.get(f"fuseline{precision}"))


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return None if theirs is None or ours is None else round(theirs / ours, 3)


def _release(steps: dict[str, Step]) -> None:
    """Give the memory of this configuration back before the next one is built."""
    steps.clear()
    cache.clear()
    torch.compiler.reset()
    gc.collect()


def _variants(case: TrainingCase, arguments: argparse.Namespace) -> Iterator[tuple[str, Step]]:
    """Those that are asked for, each built when its turn comes."""
    model = case.build(dropout=arguments.as_people_train)
    batch = case.inputs(model)
    exported = export(model, train=True, check=False)
    wanted = [name for name in arguments.contenders.split(",") if name]
    for precision in ("", _BF16) if arguments.bf16 else ("",):
        for name, build in _contenders(case, model, exported, batch, arguments, bool(precision)).items():
            if not wanted or name + precision in wanted:
                yield name + precision, build()


def _contenders(
    case: TrainingCase,
    model: Any,
    exported: Model,
    batch: dict[str, Any],
    arguments: argparse.Namespace,
    bf16: bool,
) -> dict[str, Callable[[], Step]]:
    threads, sdpa = arguments.threads, "sdpa" if type(model)._supports_sdpa else "eager"
    dropout: bool = arguments.as_people_train
    max_norm = _MAX_NORM if dropout else 0.0
    native = partial(_native, exported, batch, threads, bf16, max_norm)
    torchs = partial(_torch, batch=batch, bf16=bf16, max_norm=max_norm)
    found: dict[str, Callable[[], Step]] = {"fuseline": native}
    for left_out in arguments.without:
        found[f"fuseline without {left_out}"] = partial(native, [left_out])
    if not bf16:
        found["stock onnxruntime"] = lambda: _stock(exported, batch, threads, max_norm)
    found["torch eager"] = lambda: torchs(copy.deepcopy(model))
    if sdpa == "sdpa":
        found["torch sdpa"] = lambda: torchs(case.build(sdpa, dropout=dropout))
    if not arguments.no_compile:
        found["torch compile"] = lambda: torchs(case.build(sdpa, dropout=dropout), compiled=True)
    return found


def _native(
    exported: Model,
    batch: dict[str, Any],
    threads: int,
    bf16: bool,
    max_norm: float,
    left_out: Sequence[str] = (),
) -> Step:
    pipeline = Pipeline.resolve("training,insert-optimizer")
    if bf16:
        pipeline = in_precision(pipeline, "bf16")
    return native_step(pipeline.run(exported, disable=left_out).model, batch, threads, max_norm)


def _stock(exported: Model, batch: dict[str, Any], threads: int, max_norm: float) -> Step:
    """It computes all rows, as ONNX Runtime would by itself."""
    model = Pipeline.resolve("training-stock").run(exported, disable=["select-labelled"]).model
    return stock_step(model, batch, threads, max_norm)


def _torch(model: Any, *, batch: dict[str, Any], bf16: bool, max_norm: float, compiled: bool = False) -> Step:
    forward = torch.compile(model) if compiled else model

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return cast(Tensor, forward(**batch).loss)

    return torch_step(loss, model.parameters(), max_norm)


def _line(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {ms:.0f}" for name, ms in row["ms"].items())
    ratio = " and in bf16 ".join(f"{row[key]:.2f}×" for key in ("ratio", "ratio in bf16") if row[key])
    return f"{row['case']}: {ratio or '-'} the best torch (goal {row['goal']:.2f}); ms: {times}"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="One training step (medians of interleaved runs)")
    columns = ("configuration", "fuseline ms", "best torch", "ms", "ratio", "goal", "to stock ORT", "in bf16")
    for column in columns:
        table.add_column(column)
    for row in rows:
        ms = row["ms"]
        numbers = [row["goal"], row["ratio to stock"], row["ratio in bf16"]]
        table.add_row(
            row["case"],
            _number(ms.get("fuseline"), 0),
            row["best torch"] or "-",
            _number(ms.get(row["best torch"]), 0),
            _number(row["ratio"]),
            *(_number(value) for value in numbers),
        )
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
