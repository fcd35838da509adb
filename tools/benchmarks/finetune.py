"""Training as people do it: the stock Trainer in all its ways and ours, taking turns on the same real text.

    python -m fuseline.tools.benchmarks.finetune [--only CASES] [--paddings NAMES] [--contenders NAMES]
        [--steps N] [--quick] [--seeds N] [--memory] [--results FILE] [--page]

Each model has its own dropout, gradients are clipped at 1.0, AdamW is torch's fused one (ours is in the
graph). Trainers run in one process, two steps at a time. `torch_compile` and ONNX Runtime's own operators
take minutes to get ready, and are measured with MiniLM alone unless `--contenders` names them. `--seeds N`
trains MiniLM for an epoch so many times each and judges it on comments that were held out; `--memory` runs
each contender in a process of its own. What is measured is added to the results file, from which `--page`
writes table and picture for the documentation. Exit 1 when ours trains to another loss (more than 5 % off),
or to an accuracy more than half a point off the stock one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import transformers

from fuseline.tools.benchmarks.finetune_cases import CASES, PADDINGS, FinetuneCase
from fuseline.tools.benchmarks.finetune_page import summary, write_page
from fuseline.tools.benchmarks.finetune_trainers import CONTENDERS, SLOW_TO_START, accuracies, memory, race
from fuseline.tools.console import console

__all__ = ["main"]

RESULTS = Path("docs/finetuning.json")
_QUICK = 4
_LOSS, _POINTS = 0.05, 0.5


def main() -> int:
    options = _options()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    cases = [c for c in CASES if any(text in c.name for text in options.only.split(","))]
    if options.one:
        print(memory(cases[0], options.paddings.split(",")[0], options.one))
        return 0
    results: dict[str, Any] = json.loads(options.results.read_text()) if options.results.is_file() else {}
    wrong = []
    names = options.contenders.split(",") if options.contenders else []
    if not options.page and not options.seeds:
        wrong += _speeds(cases, names, options, results)
    if options.seeds:
        results["judged"] = {"examples": options.examples, "held out": options.held_out}
        wrong += _accuracies(names or list(CONTENDERS), options, results)
    if options.page:
        write_page(results, options.results.with_suffix(".md"))
    for line in summary(results):
        console.print(line)
    for text in wrong:
        sys.stderr.write(f"{text}\n")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name contains one of these")
    parser.add_argument("--paddings", default=",".join(PADDINGS))
    parser.add_argument("--contenders", default="", help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK} steps")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seeds", type=int, default=0, help="accuracy of MiniLM over so many seeds")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--held-out", type=int, default=4000)
    parser.add_argument("--memory", action="store_true", help="peak memory too")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write table and picture, measure nothing")
    return parser.parse_args()


def _speeds(
    cases: list[FinetuneCase], asked: list[str], options: argparse.Namespace, results: dict[str, Any]
) -> list[str]:
    wrong = []
    for case in cases:
        names = asked or [n for n in CONTENDERS if case.every_contender or n.split()[0] not in SLOW_TO_START]
        for padding in (p for p in options.paddings.split(",") if p in case.paddings):
            found = race(case, padding, names, _QUICK if options.quick else options.steps)
            if options.memory:
                for name in names:
                    found[name]["memory"] = _memory_of(case, padding, name, options.threads)
            wrong += _off(f"{case.name}, {padding}", found)
            results.setdefault("speed", {}).setdefault(f"{case.name} | {padding}", {}).update(found)
            _store(results, options.results)
            console.print(f"{case.name}, {padding}: measured")
            torch.compiler.reset()
    return wrong


def _off(label: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Ours against the first of the stock ones: the mean loss of the same batches, dropout aside."""
    stock = next((row["loss"] for name, row in found.items() if name.split()[0] in ("eager", "sdpa")), None)
    ours = {name: row["loss"] for name, row in found.items() if name.startswith("fuseline")}
    return [
        f"{label}: {name} has the mean loss {loss}, the stock Trainer {stock}"
        for name, loss in ours.items()
        if stock is not None and abs(loss - stock) > _LOSS * abs(stock)
    ]


def _memory_of(case: FinetuneCase, padding: str, name: str, threads: int) -> float:
    command = [sys.executable, "-m", "fuseline.tools.benchmarks.finetune", "--only", case.name]
    command += ["--paddings", padding, "--one", name, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return round(float(done.stdout.split()[-1]), 1)


def _accuracies(names: list[str], options: argparse.Namespace, results: dict[str, Any]) -> list[str]:
    for seed in range(1, options.seeds + 1):
        for name in names:
            kept = results.setdefault("accuracy", {}).setdefault(name, {})
            if str(seed) not in kept:
                kept.update({str(seed): accuracies([name], options.examples, options.held_out, seed)[name]})
                _store(results, options.results)
    means = {name: 100 * mean(by_seed.values()) for name, by_seed in results["accuracy"].items()}
    stock = means.get("sdpa")
    return [
        f"{name} reaches {points:.2f} %, the stock Trainer {stock:.2f} %"
        for name, points in means.items()
        if stock is not None and name.startswith("fuseline") and abs(points - stock) > _POINTS
    ]


def _store(results: dict[str, Any], path: Path) -> None:
    results["threads"] = torch.get_num_threads()
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
