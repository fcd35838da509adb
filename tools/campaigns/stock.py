"""An environment that holds the newest stock onnxruntime, no torch and nothing of this project.

As a program, in that environment, `python stock.py FOLDER` runs every model of a folder on its saved batches
and prints how far the outputs are from the saved ones.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DEFAULT", "compare", "environment", "run_there", "save_batch", "variables"]

DEFAULT = Path(".venv-stock")
_PACKAGES = ("onnxruntime", "onnx", "onnx_ir", "numpy", "networkx", "pyyaml", "rich")


def environment(folder: Path) -> Path:
    """The Python of the environment, made on first use."""
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        (folder / ".ready").touch()
    return python


def run_there(
    folder: Path, arguments: Sequence[str | Path], variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a program prints as JSON in the environment at `folder`."""
    command = [str(environment(folder)), *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"stock onnxruntime failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def variables(folder: Path) -> dict[str, str]:
    """An environment in which this package and its library are found there; everything else comes from there.

    Links are put into `folder`: to the package, and to its metadata, which says where the passes are.
    """
    from fuseline.kernels import require

    metadata = importlib.metadata.distribution("fuseline").locate_file("")
    package = Path(__file__).absolute().parents[2]
    for found in (package, *Path(str(metadata)).glob("fuseline-*.dist-info")):
        (folder / found.name).symlink_to(found)
    return {**os.environ, "PYTHONPATH": str(folder), "FUSELINE_KERNELS": str(require())}


def save_batch(
    folder: Path, name: str, index: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> None:
    """Inputs and expected outputs beside the model `name`.onnx."""
    arrays = {f"in.{key}": value for key, value in inputs.items()}
    arrays |= {f"out.{key}": value for key, value in outputs.items()}
    np.savez(folder / f"{name}@{index}.npz", allow_pickle=False, **arrays)


def compare(folder: Path) -> dict[str, Any]:
    """The largest difference of each model's outputs, and the largest expected magnitude."""
    import onnxruntime

    models: dict[str, tuple[float, float]] = {}
    for path in sorted(folder.glob("*.onnx")):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        apart = scale = 0.0
        for batch in sorted(folder.glob(f"{path.stem}@*.npz")):
            arrays = dict(np.load(batch))
            names = [key.removeprefix("out.") for key in arrays if key.startswith("out.")]
            inputs = {i.name: arrays[f"in.{i.name}"] for i in session.get_inputs()}
            for name, made in zip(names, session.run(names, inputs), strict=True):
                expected = arrays[f"out.{name}"]
                apart = max(apart, float(np.abs(expected - made.reshape(expected.shape)).max()))
                scale = max(scale, float(np.abs(expected).max()))
        models[path.stem] = (apart, scale)
    return {"onnxruntime": onnxruntime.__version__, "models": models}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compare(Path(sys.argv[1]))))
