"""The tuner on three real models, begun with a choice of operators that loses too much on each.

    python -m fuseline.tools.benchmarks.quantize_tuning [--only minilm,paraphrase,characters] [--trials N]

MiniLM judged by labels, a sentence encoder of somebody else by the cosine to its float self, a language model
by its perplexity. Every activation is quantized at first, as ONNX Runtime's static mode does; nobody says
which nodes are fragile. The first of them is begun in a process that is killed after two trials: its best has
to be on disk, and the run here goes on from there. Exit 1 when one of them misses 1 % within the budget, or
what was killed is lost.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.classifier import FOLDER, classifier
from fuseline.tools.benchmarks.language_model import STEPS, fed, input_names, perplexity, trained
from fuseline.tools.benchmarks.quantize_accuracy import EVERYTHING, batches
from fuseline.tools.campaigns.third_party import models
from fuseline.tools.console import console
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.data import Batch, Batches
from fuseline.tools.quantizer.metrics import Metric, Predict, main_output, predictor

__all__ = ["main"]

Array = npt.NDArray[Any]
LOSS = 0.01
KILLED_AFTER = 2


@dataclass(frozen=True)
class Case:
    model: Path
    metric: str | Metric
    calibration: Batches
    test: Batches


def minilm(texts: int) -> Case:
    files = classifier(FOLDER)
    return Case(files.model, "accuracy", batches(files.calibration, 128, 4), batches(files.validation, texts))


def paraphrase(texts: int) -> Case:
    """The same comments: both models come from one family and share their tokens."""
    known = minilm(texts)
    calibration, test = (_without_types(b) for b in (known.calibration, known.test))
    return Case(_third_party("paraphrase-MiniLM"), "similarity", calibration, test)


def _without_types(given: Batches) -> Batches:
    kept = [Batch({k: b.inputs[k] for k in ("input_ids", "attention_mask")}) for b in given]
    return Batches(kept, given.origin)


def characters(texts: int) -> Case:
    """The language model that `language_model` trains; a higher score is a lower perplexity."""
    path, test, calibration = trained(FOLDER, STEPS)
    names = input_names(path)

    def inputs(rows: Array) -> Batches:
        made = [Batch(fed(rows[i : i + 16], names)) for i in range(0, len(rows), 16)]
        return Batches(made, path.name)

    def metric(predict: Predict) -> float:
        return 1 / perplexity(predict, test, names)

    return Case(path, metric, inputs(calibration), inputs(test))


def _third_party(name: str) -> Path:
    return next(p for p in models() if name in str(p))


CASES: dict[str, Callable[[int], Case]] = {
    "minilm": minilm,
    "paraphrase": paraphrase,
    "characters": characters,
}


def tuned(name: str, case: Case, options: argparse.Namespace, folder: Path) -> bool:
    began = time.monotonic()
    accuracy: dict[str, Any] = {"criterion": "relative", "tolerable-loss": LOSS}
    if isinstance(case.metric, str):
        accuracy["metric"] = case.metric
    budget = {"trials": options.trials, "time": options.seconds}
    before = _trials(folder / f"{name}.onnx")
    outcome = quantize(
        case.model,
        folder / f"{name}.onnx",
        {**EVERYTHING, "accuracy": accuracy, "budget": budget},
        calibration=case.calibration,
        evaluation=case.test,
        metric=None if isinstance(case.metric, str) else case.metric,
        tell=lambda line: console.print(f"  {line}"),
    )
    products = len(outcome.left.products)
    console.print(
        f"  {'met' if outcome.met else 'missed'} with {len(outcome.trials)} trials in "
        f"{time.monotonic() - began:.0f} s; {products} products in float, {outcome.size_ratio:.2f}× the size"
    )
    went_on = [t.name for t in outcome.trials][: len(before)] == before
    return bool(outcome.met) and went_on and len(outcome.trials) > len(before)


def killed(name: str, case: Case, options: argparse.Namespace, folder: Path) -> bool:
    """Whether a run that was killed half-way has left a model that runs."""
    output = folder / f"{name}.onnx"
    arguments = ["--only", name, "--texts", str(options.texts), "--child", str(folder)]
    command = [sys.executable, "-m", "fuseline.tools.benchmarks.quantize_tuning", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and len(_trials(output)) < KILLED_AFTER:
        time.sleep(0.2)
    process.kill()
    if process.wait() >= 0:
        console.print("  it ended before it could be killed")
        return False
    found = main_output(predictor(Model.load(output))(next(iter(case.test.inputs()))))
    console.print(f"  killed after {len(_trials(output))} trials; the best so far runs: {list(found.shape)}")
    return True


def _trials(output: Path) -> list[str]:
    """The names of the trials that a journal holds: behind its key and the float model's score."""
    path = Path(f"{output}.tuning/journal.jsonl")
    # What stands behind the last end of a line is still being written.
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line)["name"] for line in lines[2:]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(CASES))
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        met = [tuned(n, CASES[n](options.texts), options, options.child) for n in options.only]
        return 0 if all(met) else 1
    kept = True
    with tempfile.TemporaryDirectory(prefix="fuseline-tuning-") as folder:
        for place, name in enumerate(options.only):
            console.print(name)
            case = CASES[name](options.texts)
            if place == 0:
                kept = killed(name, case, options, Path(folder)) and kept
            kept = tuned(name, case, options, Path(folder)) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
