"""How much a process grows by a training step, on whatever onnxruntime is installed.

    python -m fuseline.tools.benchmarks.memory_growth FOLDER

The folder holds step.onnx, batch.npz and small.npz. Steps on the small batch come first, so that code is
loaded and sessions are ready; what freed memory the process still holds then goes back to the system. The
growth is the most that is resident in the steps on the batch over what was resident before them.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.engine.model import Model
from fuseline.engine.training.step import TrainingStep
from fuseline.tools.measuring import resident

__all__ = ["grown"]

_STEPS = 4


def grown(folder: Path) -> dict[str, Any]:
    import onnxruntime

    import fuseline.kernels  # noqa: F401  (the operators of the graph)

    stock = not hasattr(onnxruntime, "training")
    step = TrainingStep(
        Model.load(folder / "step.onnx"),
        threads=2,
        runtime="stock" if stock else "training",
    )
    batch, small = (dict(np.load(folder / f"{name}.npz")) for name in ("batch", "small"))
    for seed in range(2):
        step.run(small, seed=seed)
    # Moments of rows that no batch has touched are not in memory yet; they belong to the state.
    step.load_optimizer_state(step.optimizer_state())
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # The block of the small batch lies within that of the other.
    before = resident.held() - (step.block[1] if step.block else 0)
    resident.forget_peak()
    for seed in range(_STEPS):
        step.run(batch, seed=seed)
    growth = resident.peak() - before
    digest = hashlib.sha256()
    for _, value in sorted(step.state_dict().items()):
        digest.update(value.tobytes())
    return {
        "onnxruntime": onnxruntime.__version__,
        "growth": growth,
        "alive": step.memory(batch).peak,
        "state": digest.hexdigest(),
        "block": step.block,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(grown(Path(sys.argv[1]))))
