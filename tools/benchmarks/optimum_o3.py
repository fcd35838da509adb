"""Runs in an environment of its own, which holds optimum-onnx and no fuseline: its O3 on a list of files.

    python optimum_o3.py JOBS.json

A job has a source, a target and the model's config. What fails has no target in the end; a job that ended the
whole process is recognised by the mark it left, and skipped when the process is started again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def optimize(source: Path, target: Path, settings: dict[str, Any]) -> None:
    # Only the other environment has it.
    from optimum.onnxruntime import (  # type: ignore[import-not-found]
        AutoOptimizationConfig,
        ORTOptimizer,
    )
    from transformers import AutoConfig

    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    optimizer = ORTOptimizer([source], config)
    with tempfile.TemporaryDirectory() as folder:
        optimizer.optimize(AutoOptimizationConfig.O3(), save_dir=folder, file_suffix="")
        shutil.copy(Path(folder) / source.name, target)


def main() -> int:
    for job in json.loads(Path(sys.argv[1]).read_text()):
        target = Path(job["target"])
        mark = target.with_suffix(".started")
        if target.exists() or mark.exists():
            continue
        mark.touch()
        try:
            optimize(Path(job["source"]), target, dict(job["config"]))
        except Exception as error:  # model types it does not know, graphs it cannot take
            mark.write_text(f"{type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
