"""AdamW against torch's fused AdamW and against the machine's bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch

from fuseline.kernels.operator import Array
from fuseline.tools.benchmarks.graphs import graph, native
from fuseline.tools.benchmarks.kernel_cases import Case

__all__ = ["Memory", "optimizer_cases"]


class Memory:
    """Simple loops over memory far larger than the caches: what a kernel bound by memory is measured by."""

    _BYTES: ClassVar[dict[str, int]] = {"copy": 8, "triad": 12, "scale": 8}  # per element

    def __init__(self, elements: int = 60_000_000) -> None:
        self._elements = elements
        a, b, c = (torch.ones(elements) for _ in range(3))
        self.variants: dict[str, Callable[[], object]] = {
            "copy": lambda: a.copy_(b),
            "triad": lambda: torch.add(b, c, alpha=3.0, out=a),
            "scale": lambda: a.mul_(1.0001),
        }

    def bandwidth(self, seconds: Mapping[str, float]) -> float:
        """Bytes per second of the fastest loop."""
        return max(size * self._elements / seconds[name] for name, size in self._BYTES.items())


def _shapes(elements: int) -> list[int]:
    """Sizes like a model's: one large table, then many matrices."""
    sizes = [elements // 3]
    matrix = 768 * 3072
    while sum(sizes) + matrix < elements:
        sizes.append(matrix)
    return [*sizes, elements - sum(sizes)]


def _native(lists: list[list[Array]], max_norm: float, zero: bool, threads: int) -> Callable[[], object]:
    scalars = {
        "lr": np.array([1e-4]),
        "decay": np.array([0.01]),
        "hyper": np.array([0.9, 0.999, 1e-8]),
        "step": np.array([0]),
        "norm": np.array([max_norm], np.float32),
        "scale": np.array([1.0], np.float32),
        "apply": np.array([True]),
    }
    named = {f"{kind}{i}": t for kind, group in zip("pgmv", lists, strict=True) for i, t in enumerate(group)}
    results = ["applied", "gradient_norm"] if max_norm else ["applied"]
    node = native("FusedAdamW", [*scalars, *named], results, zero_gradients=int(zero))
    return graph([node], {**scalars, **named}, results, threads)


def optimizer_cases(elements: int, threads: int) -> Iterator[Case]:
    sizes = _shapes(elements)
    rng = np.random.default_rng(0)
    lists = [[rng.standard_normal(n, dtype=np.float32) * 1e-2 for n in sizes] for _ in range(2)]
    lists += [[np.zeros(n, np.float32) for n in sizes] for _ in range(2)]
    parameters = [torch.nn.Parameter(torch.from_numpy(p.copy())) for p in lists[0]]
    gradients = [torch.from_numpy(g.copy()) for g in lists[1]]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def clipped() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    def clipped_and_zeroed() -> None:
        clipped()
        optimizer.zero_grad(set_to_none=False)

    millions = elements // 1_000_000
    for name, max_norm, zero, rival, traffic in (
        ("", 0.0, False, optimizer.step, 28),
        (", clipped", 1.0, False, clipped, 32),
        (", clipped, gradients zeroed", 1.0, True, clipped_and_zeroed, 36),
    ):
        ours = _native(lists, max_norm, zero, threads)
        yield Case(f"AdamW {millions} M{name}", {"fuseline": ours, "torch": rival}, bytes=traffic * elements)
