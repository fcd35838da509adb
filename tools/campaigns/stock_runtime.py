"""The same finished training graph on ONNX Runtime training 1.19.2 and on the newest stock onnxruntime.

    python -m fuseline.tools.campaigns.stock_runtime [--steps 20] [--model bert] [--folder DIR]

The graph, optimizer included, is built once and saved; then it trains in this environment and in a fresh one
that holds stock onnxruntime and no torch, where the values of a step lie in one block of memory. Exit 1 when
the losses differ, or no value lies there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from fuseline.engine.model import Model
from fuseline.engine.training.settings import OptimizerSettings
from fuseline.engine.training.step import TrainingStep
from fuseline.tools.campaigns import stock

__all__ = ["main", "train"]

_TOLERANCE = 1e-4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", default="bert", help="an architecture of the zoo")
    parser.add_argument("--folder", type=Path, default=stock.DEFAULT, help="the other environment")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        sys.stdout.write(json.dumps(train(arguments.run)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _build(arguments.model, arguments.steps, Path(folder))
        here = train(Path(folder))
        there = _elsewhere(arguments.folder, Path(folder))
    return _report(here, there)


def _build(name: str, steps: int, folder: Path) -> None:
    """The finished graph and the batches it will see."""
    from fuseline.engine.pipeline import Pipeline
    from fuseline.exporters import export
    from fuseline.tools.campaigns import zoo

    model = zoo.build(name, dropout=0.1)
    exported = export(model, train=True, check=False)
    finished = Pipeline.resolve("training,insert-optimizer").run(exported).model
    finished.save(folder / "step.onnx")
    for i in range(steps):
        arrays = {k: v.numpy() for k, v in zoo.batch(model, batch=2 + i % 3, seq=12 + i % 5, seed=i).items()}
        np.savez(folder / f"batch{i:04}.npz", allow_pickle=False, **arrays)


def train(folder: Path) -> dict[str, object]:
    """Train on the saved batches with whatever onnxruntime is installed."""
    import onnxruntime

    import fuseline.kernels  # noqa: F401  (the operators of the graph)

    step = TrainingStep(
        Model.load(folder / "step.onnx"),
        threads=1,
        runtime="stock",
        settings=OptimizerSettings(learning_rate=1e-3, max_norm=1.0),
    )
    losses, placed = [], 0
    for index, path in enumerate(sorted(folder.glob("batch*.npz"))):
        losses.append(float(step.run(dict(np.load(path)), seed=index)["loss"]))
        placed += step.block[0] if step.block is not None else 0
    return {"onnxruntime": onnxruntime.__version__, "losses": losses, "placed": placed}


def _elsewhere(environment: Path, folder: Path) -> dict[str, object]:
    packages = folder / "packages"
    packages.mkdir()
    command: list[str | Path] = ["-m", "fuseline.tools.campaigns.stock_runtime", "--run", folder]
    return stock.run_there(environment, command, stock.variables(packages))


def _report(here: dict[str, object], there: dict[str, object]) -> int:
    from fuseline.tools.console import console

    ours, theirs = np.array(here["losses"]), np.array(there["losses"])
    worst = float(np.max(np.abs(ours - theirs) / np.abs(ours)))
    console.print(
        f"{len(ours)} steps on onnxruntime {here['onnxruntime']} and {there['onnxruntime']}: "
        f"first loss {ours[0]:.6f}, last {ours[-1]:.6f} and {theirs[-1]:.6f}, worst difference {worst:.1e}"
    )
    console.print(f"{there['placed']} values lay at fixed places in one block on {there['onnxruntime']}")
    return 0 if worst <= _TOLERANCE and there["placed"] else 1


if __name__ == "__main__":
    sys.exit(main())
