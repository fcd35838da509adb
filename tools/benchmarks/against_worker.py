"""One side of `against`: does what it is told, line by line, with the fuseline of its own environment.

Only calls that every version has: it is run by the interpreter of another checkout too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fuseline


class Worker:
    """The models and steps of this side."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[Any, dict[str, Any]]] = {}

    def export(self, case: str, folder: str) -> int:
        """Write a training case's graph and batch, for both sides."""
        from fuseline.tools.benchmarks.training_cases import CASES

        chosen = next(c for c in CASES if c.name == case)
        model = chosen.build()
        batch = {k: v.numpy() for k, v in chosen.inputs(model).items()}
        fuseline.export(model, train=True, check=False).save(Path(folder) / f"{case}.onnx")
        np.savez(Path(folder) / f"{case}.npz", **batch)  # type: ignore[arg-type]
        return len(batch)

    def prepare(self, case: str, folder: str, threads: int) -> int:
        """Differentiate the graph and make a step of it; gives the number of its nodes."""
        graph = fuseline.load(Path(folder) / f"{case}.onnx")
        made = fuseline.Pipeline.parse("training,insert-optimizer").run(graph).model
        step = fuseline.TrainingStep(made, threads=threads)
        batch = dict(np.load(Path(folder) / f"{case}.npz"))
        step.run(batch)
        self.steps[case] = (step, batch)
        return sum(1 for _ in made.nodes())

    def train(self, case: str, rounds: int) -> float:
        """The seconds of a step; the first is not counted."""
        step, batch = self.steps[case]
        step.run(batch)
        begin = time.perf_counter()
        for _ in range(rounds):
            step.run(batch)
        return (time.perf_counter() - begin) / rounds

    def simplify(self, path: str) -> float:
        """The seconds of loading a model and running `inference-O1` on it."""
        begin = time.perf_counter()
        fuseline.Pipeline.resolve("inference-O1").run(fuseline.load(path), in_place=True)
        return time.perf_counter() - begin


def main() -> None:
    worker = Worker()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"value": getattr(worker, order.pop("do"))(**order)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
