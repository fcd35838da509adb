"""The native step: forward, backward, clipping and AdamW in one run, on the module's own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.execution.weights import weights_as_initializers
from fuseline.engine.model import Model
from fuseline.engine.training.optimizer import GRADIENT_NORM
from fuseline.engine.training.step import TrainingStep
from fuseline.tools.trainer.tensors import NamedTensors

__all__ = ["NativeAdamW", "NativeStep"]


class NativeStep:
    """A `TrainingStep` whose parameters are the module's."""

    def __init__(self, module: nn.Module, graph: Model, *, key: str, threads: int) -> None:
        self._tensors = NamedTensors(module)
        self.graph = graph
        #: What the module was when the graph was made.
        self.key = key
        self.step = TrainingStep(weights_as_initializers(graph, self._tensors.current()), threads=threads)
        self._share()

    def run(
        self, feeds: Mapping[str, Tensor], *, scale: float, seed: int | None, apply: bool
    ) -> tuple[Tensor, Tensor]:
        """The loss of one micro-batch and, after the update, the gradients' norm before clipping."""
        self._share()
        results = self.step.run(feeds, ["loss", GRADIENT_NORM], loss_scale=scale, seed=seed, apply=apply)
        return torch.from_numpy(results["loss"]), torch.from_numpy(results[GRADIENT_NORM])[0]

    def _share(self) -> None:
        """Work on the module's memory; where a pass changed a layout, the module works on the step's."""
        named = {n: t for n, t in self._tensors.current().items() if n in self.graph.parameters}
        self.step.bind(named)
        views = self.step.parameters
        for name, tensor in named.items():
            if name in views and tensor.data_ptr() != views[name].__array_interface__["data"][0]:
                tensor.data = torch.from_numpy(views[name])


class NativeAdamW(torch.optim.AdamW):
    """AdamW whose update happens inside the graph; alone (`native` is None) it is torch's.

    The state has the names and shapes of torch's AdamW, so that checkpoints go both ways.
    """

    def __init__(self, params: Any, names: Mapping[int, str], **settings: Any) -> None:
        super().__init__(params, **settings)
        self.native: NativeStep | None = None
        self._names = dict(names)

    def adopt(self, native: NativeStep) -> None:
        """From now on the graph updates; a state that was loaded before moves there."""
        self.native = native
        if self.state:
            native.step.load_optimizer_state(_by_name(self.state, self._names))
            self.state.clear()

    def rates(self, key: str) -> dict[str, float]:
        """A setting of the groups by parameter name."""
        return {self._names[id(p)]: group[key] for group in self.param_groups for p in group["params"]}

    def step(self, closure: Any = None) -> Any:
        return super().step(closure) if self.native is None else None

    def state_dict(self) -> dict[str, Any]:
        if self.native is not None:
            self.state.update(self._from_graph(self.native))
        saved: dict[str, Any] = super().state_dict()
        if self.native is not None:
            self.state.clear()
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.native is not None:
            self.adopt(self.native)

    def _from_graph(self, native: NativeStep) -> dict[Tensor, dict[str, Tensor]]:
        saved = native.step.optimizer_state()
        found = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                moments = saved["state"].get(self._names[id(parameter)])
                if moments is not None:
                    found[parameter] = {"step": torch.tensor(float(saved["step"]))}
                    found[parameter] |= {kind: torch.from_numpy(array) for kind, array in moments.items()}
        return found


def _by_name(state: Mapping[Any, Mapping[str, Any]], names: Mapping[int, str]) -> dict[str, Any]:
    step = max(int(s["step"]) for s in state.values())
    moments = {
        names[id(p)]: {kind: value.numpy() for kind, value in s.items() if kind.startswith("exp_avg")}
        for p, s in state.items()
    }
    return {"step": step, "state": moments}
