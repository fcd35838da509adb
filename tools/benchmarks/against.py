"""This checkout against another one: the same work by turns, in two processes, as ratios.

python -m fuseline.tools.benchmarks.against OTHER/.venv/bin/python
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from fuseline.tools.console import console

__all__ = ["main"]

CASES = ("bert-4x256", "bert-mlm-4x256", "gpt2-4x256", "vit-4x384")
_BAR = 0.98


class Side:
    """A process of one checkout."""

    def __init__(self, python: str) -> None:
        worker = Path(__file__).with_name("against_worker.py")
        self._process = subprocess.Popen(
            # Without the worker's folder on the path: transformers would take `kernels` there for a library.
            [python, "-P", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, do: str, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def _ratio(label: str, other: Callable[[], float], this: Callable[[], float], rounds: int) -> float:
    """How many times as fast this side is: the median over rounds in which both have their turn."""
    ratios = [other() / this() for _ in range(rounds)]
    spread = f"{min(ratios):.2f} … {max(ratios):.2f}"
    console.print(f"{label:40} {median(ratios):.3f} × the other's speed   ({spread})")
    return median(ratios)


def _training(other: Side, this: Side, cases: list[str], rounds: int, threads: int) -> list[float]:
    found = []
    with tempfile.TemporaryDirectory(prefix="fuseline-against-") as folder:
        for case in cases:
            # The older exporter writes what both can read.
            other("export", case=case, folder=folder)
            nodes = [side("prepare", case=case, folder=folder, threads=threads) for side in (other, this)]
            label = f"training {case} ({nodes[0]} / {nodes[1]} nodes)"
            found.append(
                _ratio(
                    label,
                    lambda: float(other("train", case=case, rounds=5)),  # noqa: B023
                    lambda: float(this("train", case=case, rounds=5)),  # noqa: B023
                    rounds,
                )
            )
    return found


def _simplifying(other: Side, this: Side, models: list[Path], rounds: int) -> list[float]:
    found = []
    for path in models:
        for side in (other, this):
            side("simplify", path=str(path))
        found.append(
            _ratio(
                f"simplify {path.stem[:28]}",
                lambda: float(other("simplify", path=str(path))),  # noqa: B023
                lambda: float(this("simplify", path=str(path))),  # noqa: B023
                rounds,
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the interpreter of the other checkout's environment")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help=".onnx files to simplify")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    other, this = Side(options.python), Side(sys.executable)
    try:
        groups = {
            "training": _training(other, this, options.cases, options.rounds, options.threads),
            "simplify": _simplifying(other, this, options.models, options.rounds),
        }
    finally:
        other.close()
        this.close()
    slow = False
    for name, ratios in groups.items():
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slow |= mean < _BAR
            console.print(f"{name}: geometric mean {mean:.3f} (bar {_BAR})")
    sys.exit(slow)


if __name__ == "__main__":
    main()
