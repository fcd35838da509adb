"""One contender of `bench-memory`, in a process of its own whose allocations are counted.

    python -m fuseline.tools.benchmarks.memory_worker CASE CONTENDER BATCH [--lengths N]

Prints the peak of one step after warm-up as JSON: gradients count, parameters and moments do not. With
`--lengths`, so many steps of changing batch sizes instead, and how fast resident memory grows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuseline.engine.execution.plan import SessionOptions
from fuseline.engine.memory import symbols
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import session
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels.allocations import counted
from fuseline.kernels.loader import scratch_bytes
from fuseline.tools.benchmarks.memory_cases import MEMORY_CASES, OURS
from fuseline.tools.benchmarks.training_cases import TrainingCase

__all__ = ["main"]

_THREADS = 2

Step = Callable[[dict[str, Any]], object]


def without_arena() -> None:
    """Make the first session one without an arena: the training build's sessions all use the first one's."""
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
    session(Model.from_text(text), options=lambda settings: SessionOptions().apply(settings, "graph"))


def ours(case: TrainingCase, contender: str) -> TrainingStep:
    """The training step of one of our plans, judged at the case's sizes."""
    model = case.build()
    exported = export(model, train=True, example_inputs=case.inputs(model), check=False)
    made = Pipeline.parse("keep-outputs{names=loss},training,insert-optimizer").run(exported).model
    known = {"batch": case.batch, "sequence": case.tokens}
    at = "+".join(f"{name}={known[name]}" for name in symbols(made) if name in known)
    passes = OURS[contender].replace("AT", at)
    planned = Pipeline.parse(passes).run(made).model if passes else made
    return TrainingStep(planned, threads=_THREADS, arena=False)


def torch_step(case: TrainingCase, contender: str) -> Step:
    """Forward, backward and AdamW in torch; gradients are dropped after each step, as ours are."""
    model = case.build("eager" if contender == "eager" else "sdpa")
    if contender == "checkpointing":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = model
    if contender.startswith("compile-"):
        import torch._functorch.config as settings

        settings.activation_memory_budget = float(contender.removeprefix("compile-"))
        forward = torch.compile(model)

    def step(batch: dict[str, Any]) -> None:
        forward(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(case: TrainingCase, contender: str) -> dict[str, Any]:
    """Bytes that one step takes over what was there before, what was predicted, and seconds a step."""
    batch = case.inputs(case.build())
    predicted: dict[str, Any] = {}
    if contender in OURS:
        training = ours(case, contender)
        batch = {name: value for name, value in batch.items() if name in training.inputs}
        simulation = training.memory(batch)
        predicted = {"predicted": simulation.growth, "workspace": simulation.workspace}
        step: Step = training.run
    else:
        step = torch_step(case, contender)
    for _ in range(2):
        step(batch)
    with counted() as allocations:
        step(batch)
    begin = time.perf_counter()
    for _ in range(3):
        step(batch)
    seconds = (time.perf_counter() - begin) / 3
    kept = {"scratch": scratch_bytes()} if contender in OURS else {}
    return {"bytes": allocations.growth, "seconds": seconds, **predicted, **kept}


def changing(case: TrainingCase, contender: str, steps: int) -> dict[str, Any]:
    """Resident memory over steps of changing batch sizes: the slope of its second half, in bytes a step."""
    training = ours(case, contender)
    model, rng = case.build(), np.random.default_rng(0)
    sizes = [int(size) for size in rng.integers(1, case.batch + 1, 12)]
    batches = [
        {n: v for n, v in replace(case, batch=size).inputs(model).items() if n in training.inputs}
        for size in sizes
    ]
    resident = []
    for index in range(steps):
        training.run(batches[index % len(batches)])
        resident.append(_resident())
    half = resident[steps // 2 :]
    slope = float(np.polyfit(np.arange(len(half)), half, 1)[0])
    return {"resident": resident[-1], "slope": slope}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=list(MEMORY_CASES))
    parser.add_argument("contender")
    parser.add_argument("batch", type=int)
    parser.add_argument("--lengths", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(_THREADS)
    without_arena()
    case = replace(MEMORY_CASES[options.case], batch=options.batch)
    chosen = options.contender
    found = changing(case, chosen, options.lengths) if options.lengths else measure(case, chosen)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
