"""Inference exports on the newest stock onnxruntime, in an environment of its own, against torch.

    python -m fuseline.tools.stock_export [NAME …] [--folder .venv-stock]

Each model is exported at opset 18, checked here on ONNX Runtime training, then run there on the same inputs.
Exit 1 when an output differs from torch's by more than the export's own tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.tools.console import console
from fuseline.tools.stock_runtime import environment

__all__ = ["main"]

DEFAULT = ("bert", "gpt2", "llama", "t5", "whisper", "vit", "resnet", "clip", "wav2vec2")

#: Runs where there is neither torch nor fuseline.
_PROGRAM = """
import json, sys, pathlib
import numpy as np, onnxruntime
worst = {}
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    worst[file.stem] = 0.0
    for case in sorted(file.parent.glob(f"{file.stem}-*.npz")):
        arrays = dict(np.load(case))
        feeds = {i.name: arrays["in." + i.name] for i in session.get_inputs()}
        names = [n[4:] for n in arrays if n.startswith("out.")]
        for name, found in zip(names, session.run(names, feeds)):
            wanted = arrays["out." + name]
            scale = max(1.0, float(np.abs(wanted).max()))
            difference = float(np.abs(wanted - found.reshape(wanted.shape)).max()) / scale
            worst[file.stem] = max(worst[file.stem], difference)
print(json.dumps({"onnxruntime": onnxruntime.__version__, "worst": worst}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every model agrees with torch, 1 otherwise."""
    from fuseline.exporters.verify import OUTPUT_TOLERANCE

    parser = argparse.ArgumentParser(description="Inference exports on the newest onnxruntime.")
    parser.add_argument("names", nargs="*", default=list(DEFAULT), help="architectures of the zoo")
    parser.add_argument("--folder", type=Path, default=Path(".venv-stock"), help="the other environment")
    options = parser.parse_args(arguments)
    python = environment(options.folder)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            _write(name, Path(folder))
        found = _elsewhere(python, Path(folder))
    limit = OUTPUT_TOLERANCE["float32"]
    for name, difference in found["worst"].items():
        verdict = "ok" if difference <= limit else "different"
        console.print(f"{name}: {difference:.1e} from torch on onnxruntime {found['onnxruntime']}: {verdict}")
    return 0 if all(d <= limit for d in found["worst"].values()) else 1


def _write(name: str, folder: Path) -> None:
    """The graph, and inputs with torch's outputs on every checked shape."""
    from fuseline.exporters import export, zoo
    from fuseline.exporters.planning import make_plan
    from fuseline.exporters.sources import resolve

    source = resolve(zoo.build(name).eval())
    export(source).save(folder / f"{name}.onnx")
    plan = make_plan(source, train=False)
    for index, size in enumerate(plan.checked_sizes):
        batch = plan.batch(size, seed=index)
        arrays = {f"in.{i.name}": v.numpy() for i, v in zip(plan.inputs, batch, strict=True)}
        arrays |= {f"out.{key}": value.numpy() for key, value in plan.expected(batch).items()}
        np.savez(folder / f"{name}-{index}.npz", allow_pickle=False, **arrays)


def _elsewhere(python: Path, folder: Path) -> dict[str, Any]:
    command = [str(python), "-c", _PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"stock onnxruntime failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    sys.exit(main())
