"""Optimised models on the newest stock onnxruntime: the same outputs as the plain ones have here.

    python -m fuseline.tools.campaigns.stock_inference [--only bert,gpt2] [--zoo] [--cache DIR] [--folder DIR]

The models are those of the latency benchmark (and the zoo's); they are optimised and run here, then run in an
environment that holds stock onnxruntime and nothing of this project. Exit 1 when outputs differ by over 1e-4.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuseline.engine import runtime
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.benchmarks.architectures import WIDE, wide_case, zoo_case, zoo_names
from fuseline.tools.campaigns import stock
from fuseline.tools.console import console

__all__ = ["main"]

_TOLERANCE = 1e-4


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every model agrees, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Optimised models on the newest onnxruntime.")
    parser.add_argument("--only", type=lambda t: t.split(","))
    parser.add_argument("--zoo", action="store_true", help="the zoo's models too")
    parser.add_argument("--cache", type=Path, default=Path(".cache/inference"))
    parser.add_argument("--folder", type=Path, default=stock.DEFAULT, help="the other environment")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        _write(options, Path(folder))
        found = stock.run_there(options.folder, [stock.__file__, folder])
    for name, (apart, _) in found["models"].items():
        console.print(f"{name}: {apart:.1e}")
    worst = max(apart for apart, _ in found["models"].values())
    console.print(f"{len(found['models'])} models on onnxruntime {found['onnxruntime']}: worst {worst:.1e}")
    return 0 if worst <= _TOLERANCE else 1


def _write(options: argparse.Namespace, folder: Path) -> None:
    """Each model optimised, its inputs, and the outputs of the plain model on this environment's runtime."""
    cases = [wide_case(n, options.cache) for n in WIDE if not options.only or n in options.only]
    if options.zoo:
        cases += [zoo_case(name, "eager", options.cache) for name in zoo_names()]
    for case in cases:
        Pipeline.resolve("inference").run(case.model()).model.save(folder / f"{case.name}.onnx")
        outputs = runtime.run(runtime.session(case.path), case.inputs)
        stock.save_batch(folder, case.name, 0, case.inputs, outputs)


if __name__ == "__main__":
    sys.exit(main())
