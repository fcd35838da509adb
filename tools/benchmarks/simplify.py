"""Node count and time against onnxslim, onnxsim and onnxscript.optimizer, in one interleaved run.

    python -m fuseline.tools.benchmarks.simplify [--only TEXT] [--rounds N] [--no-scaling] [--json]

Everyone starts from the file and ends with a ModelProto in memory, at default settings; fuseline runs
`inference-O1` without its limit on growth, since the others have none. Every contender takes its turn before
the next round begins, and medians are compared. The bars: no graph more than 2 % larger than the best of the
three, half of onnxslim's time in the geometric mean, and time ∝ nodes^1.15 at most.
"""

from __future__ import annotations

import argparse
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import onnxscript.optimizer
import onnxsim
import onnxslim

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline, Repeat, Stage
from fuseline.passes.folding.fold_constants import FoldConstants
from fuseline.tools.benchmarks.simplify_scaling import exponent
from fuseline.tools.campaigns.third_party import light_models, models
from fuseline.tools.console import console, print_json

__all__ = ["main"]

_LARGEST_RATIO = 1.02
_TIME_RATIO = 0.5
_LARGEST_EXPONENT = 1.15
# A model's rounds end after this many seconds, so that the slowest contender does not set the pace.
_SECONDS_PER_MODEL = 15.0
_RIVALS = ("onnxslim", "onnxsim", "onnxscript")


@dataclass
class Measurement:
    """Nodes and seconds of every contender on one model; a contender that fails is absent."""

    model: str
    before: int
    nodes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def time(self, contender: str) -> float | None:
        return statistics.median(self.seconds[contender]) if self.seconds.get(contender) else None

    @property
    def best(self) -> int:
        return min(self.nodes[r] for r in _RIVALS if r in self.nodes)

    @property
    def too_large(self) -> bool:
        return self.nodes["fuseline"] > self.best * _LARGEST_RATIO


def _contenders() -> dict[str, Callable[[Path], onnx.ModelProto]]:
    pipeline = _without_limit(Pipeline.resolve("inference-O1"))

    def fuseline(path: Path) -> onnx.ModelProto:
        return pipeline.run(Model.load(path), in_place=True).model.to_proto()

    return {
        "fuseline": fuseline,
        "onnxslim": lambda path: onnxslim.slim(onnx.load(path)),
        "onnxsim": lambda path: onnxsim.simplify(onnx.load(path))[0],
        "onnxscript": lambda path: onnxscript.optimizer.optimize(onnx.load(path)),
    }


def _without_limit(pipeline: Pipeline) -> Pipeline:
    def lift(stage: Stage) -> Stage:
        if isinstance(stage, Repeat):
            return replace(stage, stages=tuple(map(lift, stage.stages)))
        return replace(stage, growth=1 << 62) if isinstance(stage, FoldConstants) else stage

    return replace(pipeline, stages=tuple(map(lift, pipeline.stages)))


def measure(path: Path, rounds: int) -> Measurement:
    result = Measurement(path.name, _nodes(onnx.load(path)))
    contenders = _contenders()
    started = time.perf_counter()
    for turn in range(rounds + 1):
        for name, simplify in list(contenders.items()):
            begun = time.perf_counter()
            try:
                made = simplify(path)
            except Exception as error:  # a rival's failure is a result, too
                console.print(f"{path.name}: {name} fails: {str(error)[:100]}")
                del contenders[name]
                continue
            seconds = time.perf_counter() - begun
            # The first turn warms up; it counts only where there is time for no other.
            earlier = result.seconds.get(name, []) if turn > 1 else []
            result.seconds[name] = [*earlier, seconds]
            result.nodes[name] = _nodes(made)
        if time.perf_counter() - started > _SECONDS_PER_MODEL:
            break
    return result


def _nodes(model: onnx.ModelProto) -> int:
    return _graph_nodes(model.graph.node) + sum(_graph_nodes(f.node) for f in model.functions)


def _graph_nodes(nodes: Any) -> int:
    total = len(nodes)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                total += _graph_nodes(attribute.g.node)
    return total


def _show(measurements: list[Measurement]) -> None:
    # Plain columns: the table is wide, and a pipe would wrap a drawn one.
    console.print(f"{'':36}{'nodes':>6}" + "".join(f"{name:>16}" for name in ("fuseline", *_RIVALS)))
    for m in measurements:
        cells = "".join(f"{_cell(m, name):>16}" for name in ("fuseline", *_RIVALS))
        ratio = _time_ratio(m)
        against = f"  time × {ratio:.2f} of onnxslim's" if ratio is not None else ""
        mark = "  TOO LARGE" if m.too_large else ""
        console.print(
            f"{m.model:36}{m.before:>6}{cells}  size × {m.nodes['fuseline'] / m.best:.3f}{against}{mark}"
        )


def _cell(measurement: Measurement, name: str) -> str:
    seconds = measurement.time(name)
    return f"{measurement.nodes[name]} {seconds:8.2f} s" if seconds is not None else "failed"


def _time_ratio(measurement: Measurement) -> float | None:
    ours, theirs = measurement.time("fuseline"), measurement.time("onnxslim")
    return ours / theirs if ours is not None and theirs is not None else None


def _mean_ratio(measurements: list[Measurement]) -> float:
    ratios = [r for m in measurements if (r := _time_ratio(m)) is not None]
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> int:
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose path contains this text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-scaling", action="store_true", help="leave out the scaling run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = [m for m in (*models(), *light_models()) if arguments.only in str(m)]
    measurements = [measure(path, arguments.rounds) for path in chosen]
    slope = None if arguments.no_scaling else exponent()
    missed = [
        f"{m.model} is {m.nodes['fuseline'] / m.best:.3f} × the best" for m in measurements if m.too_large
    ]
    mean = _mean_ratio(measurements)
    if mean > _TIME_RATIO:
        missed.append(f"time is {mean:.2f} of onnxslim's")
    if slope is not None and slope > _LARGEST_EXPONENT:
        missed.append(f"time grows with nodes^{slope:.2f}")
    if arguments.json:
        rows = [
            {"model": m.model, "before": m.before, "nodes": m.nodes, "seconds": m.seconds}
            for m in measurements
        ]
        print_json({"models": rows, "time_ratio": mean, "exponent": slope, "missed": missed})
    else:
        _show(measurements)
        console.print(f"time: {mean:.2f} of onnxslim's in the geometric mean (bar {_TIME_RATIO})")
        if slope is not None:
            console.print(f"time ∝ nodes^{slope:.2f} (bar {_LARGEST_EXPONENT})")
    for text in missed:
        sys.stderr.write(f"missed: {text}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
