"""What of a training run was on ONNX Runtime, what in torch, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fuseline.engine.memory.planning import MemoryPlan
from fuseline.engine.plurals import counted

__all__ = ["Report", "speed_against"]


@dataclass(frozen=True)
class Report:
    """Made by `trainer.report()`; its text is one line."""

    #: Calls of the model by the way they took; "torch" is the one that is not on ONNX Runtime.
    calls: Mapping[str, int]
    #: Why calls ran in torch, and why the optimizer is not in the graph though it was to be.
    reasons: Sequence[str] = ()
    #: What was exported, transformed and found in the cache, and how long that took.
    compiled: Mapping[str, int] = field(default_factory=dict)
    compile_seconds: float = 0.0
    #: The worst difference of a gradient to torch's on the user's batch; None if that was not checked.
    gradient_difference: float | None = None
    #: Forward and backward, torch's seconds by ours, on the batches given.
    speed: float | None = None
    #: How training steps stay within their budget of memory: one plan for each range of shapes.
    memory: Sequence[MemoryPlan] = ()

    @property
    def on_graph(self) -> int:
        return sum(count for way, count in self.calls.items() if way != "torch")

    @property
    def in_torch(self) -> int:
        return self.calls.get("torch", 0)

    def __str__(self) -> str:
        parts = [f"{counted(self.on_graph, 'call')} on ONNX Runtime, {self.in_torch} in torch"]
        if self.reasons:
            parts[0] += f" ({'; '.join(self.reasons)})"
        parts.append(f"compiled in {self.compile_seconds:.1f} s")
        if self.gradient_difference is not None:
            parts.append(f"gradients checked, {self.gradient_difference:.0e} from torch's")
        if self.memory:
            most = max(self.memory, key=lambda plan: plan.peak)
            parts.append(f"steps planned to take {most.peak / 1e6:,.0f} MB at most ({most.name})")
        if self.speed is not None:
            parts.append(f"{self.speed:.2f} times the speed of torch")
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        from fuseline.engine.display import text_html

        return text_html(str(self))


def speed_against(
    ours: Callable[[Any], None], torchs: Callable[[Any], None], batches: Sequence[Any], rounds: int = 3
) -> float:
    """Torch's time by ours, the two taking turns on every batch; the first round warms up."""
    seconds: dict[str, list[float]] = {"ours": [], "torchs": []}
    for number in range(rounds + 1):
        for batch in batches:
            for name, run in (("ours", ours), ("torchs", torchs)):
                begin = time.perf_counter()
                run(batch)
                if number:
                    seconds[name].append(time.perf_counter() - begin)
    return median(seconds["torchs"]) / median(seconds["ours"])
