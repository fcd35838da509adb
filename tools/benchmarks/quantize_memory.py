"""The peak memory of calibrating BERT-base, in a process of its own, against the size of the model.

    python -m fuseline.tools.benchmarks.quantize_memory [--batches N]

Percentile and entropy work on histograms of constant size, so that it does not matter how much data there is.
Exit 1 above 1.5 times the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.tools.console import console
from fuseline.tools.measuring import resident

__all__ = ["main"]

BAR = 1.5
CHILD = "--child"


def calibrate_here(path: Path, batches: int) -> dict[str, Any]:
    """What the calibration adds to the memory of a process that has imported everything."""
    import onnxruntime  # noqa: F401  its own memory is not the calibration's

    from fuseline.engine.calibration import CalibrationTable, calibrate, choose_range
    from fuseline.engine.model import Model
    from fuseline.engine.quantization.grid import Grid
    from fuseline.tools.quantizer.config import Config
    from fuseline.tools.quantizer.plan import make_plan

    before = resident.held()
    resident.forget_peak()
    model = Model.load(path)
    plan = make_plan(Config.from_dict({"mode": "static", "pipeline": "skip"}))
    chance = np.random.default_rng(0)
    data = (_batch(chance) for _ in range(batches))
    table: CalibrationTable = calibrate(model, data, plan.to_calibrate(model))
    grid = Grid(signed=False, symmetric=False)
    for observer in ("percentile", "entropy"):
        for name in table:
            choose_range(table[name], observer, grid)
    return {"bytes": resident.peak() - before, "values": len(table)}


def _batch(chance: np.random.Generator) -> dict[str, Any]:
    ids = chance.integers(5, 20_000, (4, 128)).astype(np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--cache", type=Path, default=Path("build/quantize/latency"))
    parser.add_argument(CHILD, type=Path)
    options = parser.parse_args()
    if options.child is not None:
        sys.stdout.write(json.dumps(calibrate_here(options.child, options.batches)))
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    path = _external(options.cache)
    command = [sys.executable, "-m", "fuseline.tools.benchmarks.quantize_memory", CHILD, str(path)]
    done = subprocess.run(
        [*command, "--batches", str(options.batches)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    size = sum(f.stat().st_size for f in path.parent.glob(f"{path.name}*"))
    ratio = found["bytes"] / size
    console.print(
        f"calibrating BERT-base ({size / 1e6:.0f} MB, {found['values']} values, {options.batches} batches of "
        f"4×128): {found['bytes'] / 1e6:.0f} MB at the peak, {ratio:.2f}× the model (bar {BAR}×)"
    )
    return 0 if ratio <= BAR else 1


def _external(folder: Path) -> Path:
    """The fused model with its weights beside it, as large models are kept."""
    from fuseline.engine.model import Model
    from fuseline.engine.pipeline import Pipeline
    from fuseline.tools.benchmarks.quantize_models import source

    path = folder / "bert-fused.onnx"
    if not path.exists():
        model = Model.load(source("bert", folder).path)
        Pipeline.resolve("inference").run(model).model.save(path, external=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
