"""The memory of one contender, measured in a process of its own.

    python -m fuseline.tools.measuring.peak FOLDER NAME

What is measured is the resident memory at the peak of some runs after the first ones, less what the process
held when its libraries were loaded: weights, state and everything that a run needs.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys

from fuseline.tools.measuring import resident
from fuseline.tools.measuring.subject import Subject

__all__ = ["peak_of"]

_RUNS = 3


def peak_of(subject: Subject, name: str) -> int | None:
    """Bytes, or None where the system does not tell; the subject has been prepared."""
    if not resident.measurable():
        return None
    command = [sys.executable, "-m", "fuseline.tools.measuring.peak", subject.folder, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return int(json.loads(done.stdout.splitlines()[-1]))


def _here(folder: str, name: str) -> int:
    import onnxruntime  # noqa: F401  libraries are not the contender's memory
    import torch  # noqa: F401

    from fuseline.tools.measuring.contenders import Contenders

    subject = Subject.reopen(folder)
    if not subject.is_graph:
        import transformers  # noqa: F401
    before = resident.held()
    with Contenders(subject) as contenders:
        step = contenders.build(name)
        for _ in range(_RUNS):
            step()
        gc.collect()
        resident.forget_peak()
        for _ in range(_RUNS):
            step()
        return max(0, resident.peak() - before)


if __name__ == "__main__":
    sys.stdout.write(f"{_here(*sys.argv[1:])}\n")
