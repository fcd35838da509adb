"""What quantization costs in accuracy, on MiniLM fine-tuned on real comments.

    python -m fuseline.tools.benchmarks.quantize_accuracy [--texts N] [--tuner]

Dynamic and static models against float on comments that the model has not seen; with --tuner also ONNX
Runtime's default choice of operators (every activation), which loses points, and what the tuner makes of it.
Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.classifier import FOLDER, VALIDATION, classifier
from fuseline.tools.console import console
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.behaviour import behaviour
from fuseline.tools.quantizer.data import Batch, Batches
from fuseline.tools.quantizer.metrics import predictor

__all__ = ["EVERYTHING", "batches", "main"]

POINTS, AGREEMENT, DECIBELS, SIZE = 0.3, 0.99, 25.0, 0.27
TUNED_POINTS = 0.5
# Less than the bar: what is lost on the texts to choose by is not quite what is lost on others.
TOLERATED = 0.25
EVERYTHING: dict[str, Any] = {
    # What quantize_static does unless it is told otherwise.
    "mode": "static",
    "format": "qdq",
    "operators": ["everything"],
    "activations": {"outputs": True, "type": "int8", "symmetric": False},
    "weights": {"per-channel": False, "smallest": 0},
}
CONFIGS: dict[str, dict[str, Any]] = {"dynamic": {"mode": "dynamic"}, "static": {"mode": "static"}}


def batches(path: Path, count: int, size: int = 32) -> Batches:
    """Texts spread over the file, in batches without the columns that are padding in all of them."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    chosen = np.linspace(0, len(arrays["labels"]) - 1, count).astype(np.int64)
    items = []
    for start in range(0, count, size):
        rows = chosen[start : start + size]
        length = int(arrays["attention_mask"][rows].sum(axis=1).max())
        inputs = {k: np.ascontiguousarray(v[rows, :length]) for k, v in arrays.items() if k != "labels"}
        items.append(Batch(inputs, arrays["labels"][rows]))
    return Batches(items, path.name)


def measure(config: dict[str, Any], folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    target = folder / "q.onnx"
    outcome = quantize(data["model"], target, config, calibration=data["calibration"])
    report = behaviour(data["float"], predictor(outcome.model), data["test"])
    report["size_ratio"] = target.stat().st_size / data["model"].stat().st_size
    return report


def _show(name: str, report: dict[str, Any]) -> bool:
    accuracy = report["accuracy"]
    console.print(
        f"{name:24} accuracy {accuracy['quantized']:.2%} ({accuracy['points']:+.2f} points of "
        f"{accuracy['float']:.2%}), same prediction {report['agreement']:.2%}, "
        f"{report['signal_to_noise_db']:.1f} dB, {report['size_ratio']:.3f}× the size"
    )
    kept: bool = (
        abs(accuracy["points"]) <= POINTS
        and report["agreement"] >= AGREEMENT
        and report["signal_to_noise_db"] >= DECIBELS
        and report["size_ratio"] <= SIZE
    )
    return kept


def tune(folder: Path, data: dict[str, Any]) -> bool:
    """From the defaults that lose points to a model that does not; nobody says which nodes are fragile.

    The tuner chooses by texts of its own, so that the test says how the choice does on others.
    """
    before = measure(EVERYTHING, folder, data)
    _show("everything, static", before)
    target = folder / "tuned.onnx"
    limit = {"metric": "accuracy", "criterion": "absolute", "tolerable-loss": TOLERATED / 100}
    outcome = quantize(
        data["model"],
        target,
        {**EVERYTHING, "accuracy": limit},
        calibration=data["calibration"],
        evaluation=data["validation"],
        tell=lambda line: console.print(f"  {line}"),
    )
    report = behaviour(data["float"], predictor(outcome.model), data["test"])
    report["size_ratio"] = target.stat().st_size / data["model"].stat().st_size
    _show("everything, tuned", report)
    console.print(f"left in float: {len(outcome.left.products)} products; {len(outcome.trials)} trials")
    return bool(outcome.met) and report["accuracy"]["points"] >= -TUNED_POINTS


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=10_240)
    parser.add_argument("--tuner", action="store_true")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = classifier(options.folder)
    data = {
        "model": files.model,
        "float": predictor(Model.load(files.model)),
        "calibration": batches(files.calibration, 256, 4),
        "validation": batches(files.validation, VALIDATION),
        "test": batches(files.test, options.texts),
    }
    with tempfile.TemporaryDirectory(prefix="fuseline-accuracy-") as folder:
        reports = {name: measure(config, Path(folder), data) for name, config in CONFIGS.items()}
        shown = [_show(name, report) for name, report in reports.items()]
        kept = all(shown)
        if options.tuner:
            kept = tune(Path(folder), data) and kept
    if options.json:
        options.json.write_text(json.dumps(reports, indent=2))
    console.print(f"bars: {POINTS} points, {AGREEMENT:.0%} same, {DECIBELS:.0f} dB, {SIZE}× the size")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
