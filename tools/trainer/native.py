"""The native step: forward, backward, clipping and AdamW in one run, on the module's own memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fuseline.engine.execution.weights import weights_as_initializers
from fuseline.engine.model import Model
from fuseline.engine.training.optimizer import GRADIENT_NORM
from fuseline.engine.training.step import TrainingStep
from fuseline.tools.trainer.form import Form
from fuseline.tools.trainer.tensors import NamedTensors

__all__ = ["NativeAdamW", "NativeStep"]


class NativeStep:
    """A `TrainingStep` whose parameters are the module's."""

    def __init__(self, module: nn.Module, graph: Model, *, form: Form, key: str, threads: int) -> None:
        self._module = module
        self._tensors = NamedTensors(module)
        self.graph = graph
        self.form = form
        #: What the module was when the graph was made.
        self.key = key
        self.step = TrainingStep(weights_as_initializers(graph, self._tensors.current()), threads=threads)
        self.share()

    @property
    def random(self) -> bool:
        """Whether the graph draws random numbers."""
        return self.step.random

    def run(
        self, feeds: Mapping[str, Tensor], *, scale: float, seed: int | None, apply: bool
    ) -> tuple[Tensor, Tensor]:
        """The loss of one micro-batch and, after the update, the gradients' norm before clipping."""
        results = self.step.run(feeds, ["loss", GRADIENT_NORM], loss_scale=scale, seed=seed, apply=apply)
        return torch.from_numpy(results["loss"]), torch.from_numpy(results[GRADIENT_NORM])[0]

    def look(self) -> None:
        """A layer may have been exchanged for another one of the same shape: that one's memory counts."""
        self._tensors = NamedTensors(self._module)

    def go_on_from(self, before: NativeStep) -> None:
        """Keep the gradients that were gathered for a step that is not made yet."""
        gathered = before.step.gradients
        for name, view in self.step.gradients.items():
            if name in gathered:
                view[...] = gathered[name]

    def share(self) -> None:
        """Work on the module's memory; where a pass changed a layout, the module works on the step's."""
        named = {n: t for n, t in self._tensors.current().items() if n in self.graph.parameters}
        self.step.bind(named)
        views = self.step.parameters
        for name, tensor in named.items():
            if name in views and tensor.data_ptr() != views[name].__array_interface__["data"][0]:
                tensor.data = torch.from_numpy(views[name])


class NativeAdamW(torch.optim.AdamW):
    """AdamW whose update happens inside the graph; alone (`native` is None) it is torch's.

    The state is that of torch's AdamW, over the graph's memory: it can be read, saved and loaded, and whoever
    removes or replaces it resets the graph's moments with it.
    """

    def __init__(self, params: Any, names: Mapping[int, str], **settings: Any) -> None:
        super().__init__(params, **settings)
        self.native: NativeStep | None = None
        self._names = dict(names)
        self._steps = torch.zeros(())
        self._shared: dict[Tensor, dict[str, Any]] = {}

    def prepare(self, native: NativeStep) -> None:
        """Let the graph work with the state and the settings that the groups have now, or say why not."""
        if native is not self.native or not self._is_shared():
            native.step.load_optimizer_state(self._by_name(native))
            self._share(native)
            self.native = native
        settings = native.step.settings
        settings.learning_rate, settings.weight_decay = self._rates("lr"), self._rates("weight_decay")
        settings.betas, settings.epsilon = self.param_groups[0]["betas"], self.param_groups[0]["eps"]

    def obstacles(self, trained: Iterable[Tensor]) -> list[str]:
        """What of the groups' settings and of the state the graph's AdamW does not do."""
        held = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        if any(id(parameter) not in held for parameter in trained):
            return ["a parameter that trains is not in the optimizer"]
        if not held <= self._names.keys():
            return ["the optimizer has a parameter that was added to it later"]
        reasons = [
            f"the optimizer has {key}=True"
            for key in ("amsgrad", "maximize", "differentiable")
            if any(group.get(key) for group in self.param_groups)
        ]
        if any(not group.get("decoupled_weight_decay", True) for group in self.param_groups):
            reasons.append("the optimizer's weight decay is not decoupled")
        for key in ("betas", "eps"):
            if len({str(group[key]) for group in self.param_groups}) > 1:
                reasons.append(f"the optimizer's groups have different {key}")
        if len({float(s["step"]) for s in self.state.values() if "step" in s}) > 1:
            reasons.append("the optimizer's parameters have taken different numbers of steps")
        return reasons

    def release(self) -> None:
        """From now on this is torch's AdamW, with a state of its own and the gradients gathered so far."""
        assert self.native is not None
        gathered = self.native.step.gradients
        for group in self.param_groups:
            for parameter in group["params"]:
                name = self._names.get(id(parameter))
                if name in gathered:
                    parameter.grad = torch.from_numpy(gathered[name].copy())
        for state in self.state.values():
            for key, value in state.items():
                state[key] = value.clone()
        self.native, self._shared = None, {}

    def count(self) -> None:
        """The graph has made a step."""
        assert self.native is not None
        self._steps.fill_(float(self.native.step.steps))

    def _is_shared(self) -> bool:
        return len(self.state) == len(self._shared) and all(
            len(held) == len(self._shared.get(p, ())) and all(held[k] is self._shared[p].get(k) for k in held)
            for p, held in self.state.items()
        )

    def _share(self, native: NativeStep) -> None:
        """Let the state be the graph's memory."""
        self._steps = torch.tensor(float(native.step.steps))
        moments = {kind: native.step.moments(kind) for kind in ("exp_avg", "exp_avg_sq")}
        self.state.clear()
        for group in self.param_groups:
            for parameter in group["params"]:
                name = self._names[id(parameter)]
                if name in moments["exp_avg"]:
                    self.state[parameter] = {"step": self._steps} | {
                        kind: torch.from_numpy(views[name]) for kind, views in moments.items()
                    }
        self._shared = {p: dict(s) for p, s in self.state.items()}

    def _by_name(self, native: NativeStep) -> dict[str, Any]:
        """The state by parameter name; zeros for what has none yet."""
        saved = {self._names[id(p)]: s for p, s in self.state.items() if id(p) in self._names}
        state: dict[str, dict[str, Any]] = {}
        for kind in ("exp_avg", "exp_avg_sq"):
            for name, view in native.step.moments(kind).items():
                held = saved.get(name, {}).get(kind)
                state.setdefault(name, {})[kind] = (
                    np.zeros_like(view) if held is None else held.numpy().copy()
                )
        return {
            "step": max((int(s["step"]) for s in saved.values() if "step" in s), default=0),
            "state": state,
        }

    def _rates(self, key: str) -> dict[str, float]:
        """A setting of the groups by parameter name."""
        return {self._names[id(p)]: float(g[key]) for g in self.param_groups for p in g["params"]}

    def step(self, closure: Any = None) -> Any:
        return super().step(closure) if self.native is None else None
