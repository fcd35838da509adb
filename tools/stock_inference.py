"""Optimised models on the newest stock onnxruntime: the same outputs as the plain ones have here.

    python -m fuseline.tools.stock_inference [--only bert,gpt2] [--zoo] [--cache DIR] [--folder DIR]

The models are those of the latency benchmark (and the zoo's); they are optimised and run here, then run in an
environment that holds stock onnxruntime and nothing of this project. Exit 1 when outputs differ by over 1e-4.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

__all__ = ["compare", "main"]

_TOLERANCE = 1e-4


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda t: t.split(","))
    parser.add_argument("--zoo", action="store_true", help="the zoo's models too")
    parser.add_argument("--cache", type=Path, default=Path(".cache/inference"))
    parser.add_argument("--folder", type=Path, default=Path(".venv-stock"), help="the other environment")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        sys.stdout.write(json.dumps(compare(arguments.run)))
        return 0
    from fuseline.tools.console import console
    from fuseline.tools.stock_runtime import environment

    with tempfile.TemporaryDirectory() as folder:
        _write(arguments, Path(folder))
        command = [str(environment(arguments.folder)), __file__, "--run", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"stock onnxruntime failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    for name, apart in found["differences"].items():
        console.print(f"{name}: {apart:.1e}", markup=False)
    worst = max(found["differences"].values())
    console.print(f"{len(found['differences'])} models on onnxruntime {found['version']}: worst {worst:.1e}")
    return 0 if worst <= _TOLERANCE else 1


def _write(arguments: argparse.Namespace, folder: Path) -> None:
    """Each model optimised, its inputs, and the outputs of the plain model on this environment's runtime."""
    from fuseline.engine import runtime
    from fuseline.engine.pipeline import Pipeline
    from fuseline.tools.benchmarks.architectures import WIDE, wide_case, zoo_case, zoo_names

    cases = [wide_case(n, arguments.cache) for n in WIDE if not arguments.only or n in arguments.only]
    if arguments.zoo:
        cases += [zoo_case(name, "eager", arguments.cache) for name in zoo_names()]
    for case in cases:
        Pipeline.resolve("inference").run(case.model()).model.save(folder / f"{case.name}.onnx")
        outputs = runtime.run(runtime.session(case.path), case.inputs)
        np.savez(folder / f"{case.name}.inputs.npz", allow_pickle=False, **case.inputs)
        np.savez(folder / f"{case.name}.outputs.npz", allow_pickle=False, **outputs)


def compare(folder: Path) -> dict[str, object]:
    """The largest difference of each model on whatever onnxruntime is installed, its optimisations on."""
    import onnxruntime

    differences = {}
    for path in sorted(folder.glob("*.onnx")):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        made = session.run(names, dict(np.load(path.with_suffix(".inputs.npz"))))
        expected = np.load(path.with_suffix(".outputs.npz"))
        differences[path.stem] = max(
            float(np.abs(expected[name] - value).max()) for name, value in zip(names, made, strict=True)
        )
    return {"version": onnxruntime.__version__, "differences": differences}


if __name__ == "__main__":
    sys.exit(main())
