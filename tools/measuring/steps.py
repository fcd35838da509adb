"""One training step or one run of each contender, as a function without arguments that gives its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fuseline.engine import runtime
from fuseline.engine.model import Model
from fuseline.engine.training.settings import OptimizerSettings
from fuseline.engine.training.step import TrainingStep

__all__ = ["RATE", "Results", "Step", "graph_run", "native_step", "stock_step", "torch_run", "torch_step"]

Results = dict[str, npt.NDArray[Any]]
Step = Callable[[], Results]
RATE = 1e-5
"""The learning rate: small, so that the loss of the first steps is that of the weights that came."""


def native_step(model: Model, batch: Mapping[str, Any], threads: int, max_norm: float = 0.0) -> Step:
    """Optimizer in the graph, native operators; gradients are clipped at ``max_norm``, 0: not at all."""
    settings = OptimizerSettings(learning_rate=RATE, max_norm=max_norm)
    step = TrainingStep(model, threads=threads, settings=settings)
    return lambda: step.run(batch)


def stock_step(model: Model, batch: Mapping[str, Any], threads: int, max_norm: float = 0.0) -> Step:
    """A graph of ONNX Runtime's own operators, updated by torch's fused AdamW in the same memory.

    ONNX Runtime's AdamW is slower than torch's, so this flatters the rival.
    """
    step = TrainingStep(model, threads=threads)
    tensors = {name: torch.from_numpy(array) for name, array in step.parameters.items()}
    step.bind(tensors)
    parameters = []
    for name, gradient in step.gradients.items():
        tensors[name].grad = torch.from_numpy(gradient)
        parameters.append(tensors[name])
    optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=True)

    def run() -> Results:
        results = step.run(batch)
        _update(optimizer, parameters, max_norm)
        return results

    return run


def torch_step(
    loss_of: Callable[[], Tensor], parameters: Iterable[nn.Parameter], max_norm: float = 0.0
) -> Step:
    """Forward, backward and torch's fused AdamW."""
    trained: list[Tensor] = [p for p in parameters if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, fused=True)

    def run() -> Results:
        loss = loss_of()
        loss.backward()  # type: ignore[no-untyped-call]
        _update(optimizer, trained, max_norm)
        optimizer.zero_grad()
        return {"loss": loss.detach().numpy()}

    return run


def _update(optimizer: torch.optim.Optimizer, parameters: list[Tensor], max_norm: float) -> None:
    if max_norm:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()


def torch_run(outputs_of: Callable[[], dict[str, Tensor]]) -> Step:
    """One forward call, nothing kept for a gradient."""

    def run() -> Results:
        with torch.inference_mode():
            return {name: value.numpy() for name, value in outputs_of().items()}

    return run


def graph_run(model: Model, batch: Mapping[str, Any], threads: int) -> Step:
    """A graph in a session with all of ONNX Runtime's own optimisations."""
    session = runtime.session(model, optimize="all", threads=threads)
    feeds = {name: np.asarray(value) for name, value in batch.items()}
    return lambda: runtime.run(session, feeds)
