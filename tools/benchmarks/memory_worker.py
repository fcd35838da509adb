"""One contender of `bench-memory`, in a process of its own whose allocations are counted.

    python -m fuseline.tools.benchmarks.memory_worker CASE CONTENDER BATCH
        [--lengths N | --turns | --once | --save FOLDER] [--graphs FOLDER]

Prints the peak of one step after warm-up as JSON: gradients count, parameters and moments do not. With
`--lengths`, so many steps of changing lengths instead, and how fast resident memory grows; with `--turns`,
the seconds of as many steps as each line of its input asks for; with `--once`, the peak of the first step;
with `--save`, the step and its batches, for `memory_growth`. Graphs are kept in the folder of `--graphs`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuseline.engine.memory.arena import held
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels.allocations import counted
from fuseline.kernels.loader import scratch_bytes
from fuseline.tools.benchmarks.memory_cases import ARENA, DEFAULT, MEMORY_CASES, OURS
from fuseline.tools.benchmarks.training_cases import TrainingCase
from fuseline.tools.measuring import resident

__all__ = ["main"]

_THREADS = 2
_ARENAS = {DEFAULT: None, ARENA: True}

Step = Callable[[dict[str, Any]], object]


def trainable(case: TrainingCase, folder: Path | None) -> Model:
    """The case's graph with gradients and optimizer; it is made once in a folder, for all contenders."""
    kept = folder and folder / f"{case.name}.onnx"
    if kept and kept.exists():
        return Model.load(kept)
    exported = export(case.build(), train=True, check=False)
    made = Pipeline.parse("keep-outputs{names=loss},training,insert-optimizer").run(exported).model
    if kept:
        made.save(kept)
    return made


def planned(case: TrainingCase, contender: str, folder: Path | None) -> Model:
    """The training step of one of our plans, judged at the case's sizes."""
    made = trainable(case, folder)
    shapes = {name: tuple(value.shape) for name, value in case.inputs(case.build()).items()}
    at = "+".join(f"{name}={size}" for name, size in sizes_of(made, shapes).items())
    passes = OURS[contender].replace("AT", at)
    return Pipeline.parse(passes).run(made).model if passes else made


def ours(case: TrainingCase, contender: str, folder: Path | None, *, block: bool = False) -> TrainingStep:
    """Memory as it is alive, from malloc at every step; or as the product does it, in one block."""
    if contender in (DEFAULT, ARENA):
        return TrainingStep(planned(case, "plain", folder), threads=_THREADS, arena=_ARENAS[contender])
    return TrainingStep(planned(case, contender, folder), threads=_THREADS, arena=None if block else False)


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


def built(
    case: TrainingCase, contender: str, folder: Path | None, *, block: bool = False
) -> tuple[Step, dict[str, Any], TrainingStep | None]:
    """A step, its batch and, where it is ours, what it is made of."""
    batch = case.inputs(case.build())
    if contender not in (*OURS, *_ARENAS):
        return torch_step(case, contender), batch, None
    training = ours(case, contender, folder, block=block)
    return training.run, _fed(training, batch), training


def _fed(training: TrainingStep, batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name in training.inputs}


def measure(case: TrainingCase, contender: str, folder: Path | None, warmup: int = 2) -> dict[str, Any]:
    """Bytes that one step takes over what was there before, and what was predicted."""
    step, batch, training = built(case, contender, folder)
    found: dict[str, Any] = {}
    if training is not None:
        simulation = training.memory(batch)
        found = {"predicted": simulation.growth, "workspace": simulation.workspace}
    with counted() as first:
        for _ in range(warmup):
            step(batch)
    with counted() as allocations:
        step(batch)
    found["bytes"] = allocations.growth
    if training is not None:
        found["scratch"] = scratch_bytes()
        # Of memory that is kept between steps, what the first ones added to it counts too.
        kept = first.before + found["scratch"]
        found["held"] = max(first.peak, allocations.peak) - kept
    if training is not None and training.block is not None:
        found["predicted"] = held(simulation) - simulation.workspace
        found["bytes"] += training.block[1]
    return found


def changing(case: TrainingCase, contender: str, folder: Path | None, steps: int) -> dict[str, Any]:
    """Resident memory over steps of changing lengths: the slope of its second half, in bytes a step."""
    training = ours(case, contender, folder)
    model, rng = case.build(), np.random.default_rng(0)
    sizes = [(int(rng.integers(1, case.batch + 1)), int(rng.integers(2, case.tokens + 1))) for _ in range(40)]
    batches = [
        _fed(training, replace(case, batch=batch, tokens=tokens).inputs(model)) for batch, tokens in sizes
    ]
    held = []
    for index in range(steps):
        training.run(batches[index % len(batches)])
        held.append(resident.held())
    half = held[steps // 2 :]
    slope = float(np.polyfit(np.arange(len(half)), half, 1)[0])
    return {"resident": held[-1], "slope": slope, "steps": steps}


def take_turns(case: TrainingCase, contender: str, folder: Path | None) -> None:
    """Answer every line, a number of steps, with the seconds of one."""
    step, batch, _ = built(case, contender, folder, block=True)
    for line in sys.stdin:
        step(batch)
        begin = time.perf_counter()
        for _ in range(int(line)):
            step(batch)
        print((time.perf_counter() - begin) / int(line), flush=True)


def save(case: TrainingCase, contender: str, made_in: Path | None, folder: Path) -> dict[str, Any]:
    made, model = planned(case, contender, made_in), case.build()
    made.save(folder / "step.onnx")
    inputs = {v.name for v in made.graph.inputs}
    for name, sized in (("batch", case), ("small", replace(case, batch=1, tokens=8))):
        arrays = {k: v.numpy() for k, v in sized.inputs(model).items() if k in inputs}
        np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("case", choices=list(MEMORY_CASES))
    parser.add_argument("contender")
    parser.add_argument("batch", type=int)
    parser.add_argument("--lengths", type=int, default=0)
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--graphs", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(_THREADS)
    case = replace(MEMORY_CASES[options.case], batch=options.batch)
    chosen, folder = options.contender, options.graphs
    if options.turns:
        take_turns(case, chosen, folder)
    elif options.lengths:
        print(json.dumps(changing(case, chosen, folder, options.lengths)))
    elif options.save:
        print(json.dumps(save(case, chosen, folder, options.save)))
    else:
        print(json.dumps(measure(case, chosen, folder, 0 if options.once else 2)))


if __name__ == "__main__":
    main()
