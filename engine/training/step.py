"""The training step: one session over forward, backward and, if it is in the graph, the optimizer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.execution.devices import Device, providers_for
from fuseline.engine.execution.seeds import seed_runtime
from fuseline.engine.memory import Simulation, at_sizes
from fuseline.engine.memory.arena import held
from fuseline.engine.memory.planning import MemoryPlan
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model
from fuseline.engine.properties import Property
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.budget import Allowance, check_planned, checked_largest, step_within
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.gradients import LOSS_GRADIENT
from fuseline.engine.training.portability import check_portable
from fuseline.engine.training.settings import OptimizerSettings
from fuseline.engine.training.step_runners import StepRunners
from fuseline.engine.training.step_state import StepState

__all__ = ["TrainingStep"]

Array = npt.NDArray[Any]


class TrainingStep:
    """Runs a differentiated model; parameters, gradients and moments live in memory shared with the caller.

    The graph decides the mode. With an optimizer in it (pass `insert-optimizer`) the step is **native**:
    `run` updates the parameters. Without one it is in **torch mode**: `run` fills `gradients`, and any
    optimizer may update the parameters, which the next run reads where they are.

        step = TrainingStep(result.model, threads=2)
        step.bind(dict(module.named_parameters()))              # work on torch's own memory
        loss = step.run(batch)["loss"]                          # torch mode: fills step.gradients[name]
        step.settings.learning_rate = 3e-4                      # native mode: applies to the next run
        step.run(batch, apply=False); step.run(batch)           # accumulation (pass `accumulate-gradients`)
        step.evaluate(batch, ["logits"])                        # same weights, nothing dropped

    - `parameters`, `gradients`, `moments(kind)`: original name → array, a view of the step's memory in the
      original shape. Gradients are overwritten by the next run, unless the graph accumulates them; then the
      caller clears them with `zero_gradients` (native: the update does).
    - `bind(tensors)`: use the caller's tensors in place of the step's own copies. Call it before every run
      if something may move them (DeepSpeed does); it costs next to nothing when nothing moved. Values whose
      layout a pass changed are copied in; let the module's parameters be views of `parameters` to avoid it.
    - `batch`: graph input → torch tensor or array, any shapes that the graph's dynamic axes allow.
    - `device`: "cuda" runs the same graph on ONNX Runtime's CUDA provider; the state stays in the caller's
      memory, so every step copies it there and back.
    - `optimize`: how much of the graph ONNX Runtime may rewrite ("none", "basic", "extended", "all"). With
      native operators in it the graph runs as it is, in its own order, which is how memory is planned.
    - `memory_budget`: "2GB", or a fraction of what the step takes without a plan, for batches up to the
      shapes of `largest`. The cheapest plan that fits is taken (`memory_plan`); where none does, that is an
      error here, before anything runs; a larger batch that does not fit is one in `run`. Parameters, moments
      and the batch are not counted. A plan may update parameters before all gradients are there, unless
      `settings.max_norm` asks for clipping. What does not keep to a plan (`optimize`, `arena=True`) is an
      error.
    - `arena`: True keeps memory in the runtime's arena, which holds about half as much again as is alive;
      False gives it back at once, which costs page faults. By default values lie in one block, as large as
      what is alive; where that cannot be, there is an arena unless there is a budget.
    - `seed`: makes dropout reproducible; without one, each run draws its own.
    - `profile`: ONNX Runtime's profiler writes files that begin so; `end_profiling` gives the one of `run`.
    - `loss_scale` multiplies all gradients (1/accumulation steps, or a loss scale).
    - `state_dict` / `load_state_dict`: original names; `optimizer_state` / `load_optimizer_state`: moments by
      original name, and `step`.
    """

    def __init__(
        self,
        model: Model,
        *,
        threads: int | None = None,
        optimize: str | None = None,
        runtime: Literal["training", "stock"] = "training",
        device: Device = "cpu",
        settings: OptimizerSettings | None = None,
        profile: str | None = None,
        memory_budget: str | float | None = None,
        largest: Mapping[str, Any] | None = None,
        arena: bool | None = None,
    ) -> None:
        if not model.has(Property.DIFFERENTIATED):
            raise FuselineError(
                "the model has no gradients yet", hint="run the pipeline 'training' on it first"
            )
        if runtime == "stock":
            check_portable(model)
        self.settings = settings or OptimizerSettings()
        self.memory_plan: MemoryPlan | None = None
        """The passes that keep the step within its budget, what they reach and what they cost."""
        self._allowance: Allowance | None = None
        if memory_budget is not None:
            check_planned(optimize, arena)
            optimize = "none"
            clipping = self.settings.max_norm > 0
            sized = checked_largest(largest)
            _refuse_unknown(sized, _batch_names(model))
            self.memory_plan, self._allowance = step_within(model, memory_budget, sized, clipping=clipping)
            model = self.memory_plan.model
        self.model = model
        self._clips = any(v.name == names.MAX_NORM for v in model.graph.inputs)
        self.optimizer = model.facts.training.optimizer
        self._state = StepState(model)
        options = {
            "optimize": optimize,
            "threads": threads,
            "providers": providers_for(device, model),
            "profile": profile,
            "arena": memory_budget is None if arena is None else arena,
            "block": arena is None,
        }
        self._runners = StepRunners(model, self._state, options)
        self._random = np.random.default_rng()
        # A session's bindings and the state are one at a time: threads take turns.
        self._lock = threading.RLock()
        self._known = _batch_names(model) - {*self._state.arrays}
        self._runners.training([self._loss])  # what the runtime refuses, it refuses here

    # -- what there is

    @property
    def native(self) -> bool:
        """Whether `run` updates the parameters itself."""
        return self.optimizer is not None

    @property
    def random(self) -> bool:
        """Whether a run draws random numbers."""
        return self._runners.training([self._loss]).random

    @property
    def steps(self) -> int:
        """How often the optimizer in the graph has updated the parameters."""
        return self._state.steps

    @property
    def outputs(self) -> list[str]:
        """The model's own outputs: the loss, the logits, …"""
        return list(self._runners.outputs)

    @property
    def inputs(self) -> list[str]:
        """What a batch has to hold."""
        return [n for n in self._runners.training([self._loss]).inputs if n not in (LOSS_GRADIENT, SEED)]

    @property
    def parameters(self) -> dict[str, Array]:
        return self._state.parameters

    @property
    def gradients(self) -> dict[str, Array]:
        """Empty in native mode, unless gradients are accumulated."""
        return self._state.gradients

    def moments(self, kind: str) -> dict[str, Array]:
        """A moment of the native optimizer: `exp_avg`, `exp_avg_sq` or `momentum_buffer`."""
        return self._state.moments(kind)

    # -- running

    def bind(self, tensors: Mapping[str, Any]) -> None:
        """Read and update these tensors (original name → torch tensor or array) instead of own copies."""
        with self._lock:
            self._state.adopt(self.model.parameters, tensors)

    def run(
        self,
        batch: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        loss_scale: float = 1.0,
        seed: int | None = None,
        apply: bool = True,
    ) -> dict[str, Array]:
        """One forward and backward pass and, natively with `apply`, one update; gives the loss.

        Ask for further `outputs` by name; natively `optimizer.gradient_norm` and `optimizer.applied` too.
        """
        with self._lock:
            return self._run(batch, outputs, loss_scale, seed, apply)

    def _run(
        self,
        batch: Mapping[str, Any],
        outputs: Sequence[str] | None,
        loss_scale: float,
        seed: int | None,
        apply: bool,
    ) -> dict[str, Array]:
        wanted = list(outputs) if outputs is not None else [self._loss]
        self._check_batch(batch)
        if self._allowance is not None:
            self._allowance.check(batch, wanted, lambda: held(self.memory(batch, wanted)))
        if self.optimizer is not None:
            if not apply and not self.optimizer.accumulate:
                raise FuselineError(
                    "apply=False would lose the gradients, since the graph does not accumulate them",
                    hint="put the pass 'accumulate-gradients' in front of 'insert-optimizer'",
                )
            if self.settings.max_norm > 0 and not self._clips:
                raise FuselineError(
                    "the step updates each parameter as soon as its gradient is there: it cannot clip by "
                    "the norm of all",
                    hint="leave out the pass 'release-early', or give max_norm along with the memory_budget",
                )
            self.settings.write(self._state, self.optimizer, self.model.parameters)
            self._state.arrays[names.APPLY][:] = apply
        feeds = {**batch, LOSS_GRADIENT: np.float32(loss_scale), SEED: self._seed(seed)}
        return self._runners.training(wanted).run(feeds, wanted)

    def end_profiling(self) -> Path:
        """The file that the profiler wrote about the runs so far."""
        return self._runners.training([self._loss]).end_profiling()

    def evaluate(self, batch: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """The model's outputs on the current weights, in evaluation mode."""
        wanted = tuple(outputs) if outputs is not None else tuple(self._runners.outputs)
        self._check_batch(batch)
        with self._lock:
            return self._runners.evaluation(wanted).run(batch, wanted)

    def memory(self, batch: Mapping[str, Any], outputs: Sequence[str] | None = None) -> Simulation:
        """What a run on a batch of these shapes takes, without running it: the peak, and who holds it.

        The contents do not matter; `np.empty` arrays, or torch tensors on the device "meta", will do.
        """
        self._check_batch(batch)
        model = self._runners.training(list(outputs) if outputs is not None else [self._loss]).model
        given = {name: tuple(value.shape) for name, value in batch.items()}
        given |= {name: array.shape for name, array in self._state.arrays.items()}
        return Simulation(at_sizes(model, sizes_of(model, given)))

    @property
    def block(self) -> tuple[int, int] | None:
        """Values of the last run that lay in the block, and its bytes by plan; None without one."""
        return self._runners.training([self._loss]).placed

    def _check_batch(self, batch: Mapping[str, Any]) -> None:
        _refuse_unknown(batch, self._known)

    def zero_gradients(self) -> None:
        """Clear what was accumulated."""
        with self._lock:
            self._state.zero_gradients()

    # -- state

    def state_dict(self) -> dict[str, Array]:
        """Copies of all parameters and buffers under their original names, tied ones under each."""
        with self._lock:
            return {name: np.array(view) for name, view in self.parameters.items()}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Copy parameters and buffers in: all, or none and an error for what is missing or does not fit."""
        with self._lock:
            self._state.load(self.model.parameters, state, strict=strict)

    def optimizer_state(self) -> dict[str, Any]:
        """`{"step": n, "state": {original name: {moment: array}}}`; empty in torch mode."""
        with self._lock:
            return self._state.optimizer_state()

    def load_optimizer_state(self, saved: Mapping[str, Any]) -> None:
        """Take over what `optimizer_state` gave: all of it, or nothing and an error."""
        with self._lock:
            self._state.load_optimizer_state(saved)

    # -- what it is made of

    @property
    def _loss(self) -> str:
        return str(self.model.facts.training.loss)

    def _seed(self, seed: int | None) -> Array:
        drawn = seed if seed is not None else int(self._random.integers(2**31 - 1))
        seed_runtime(drawn)
        return np.array([drawn], np.int64)


def _batch_names(model: Model) -> set[str]:
    """What a batch may hold: the graph's inputs, and those that the model declares and does not use."""
    optimizer = model.facts.training.optimizer
    own = {LOSS_GRADIENT, SEED, *(n for group in (optimizer.moments if optimizer else ()) for n in group)}
    inputs = {str(v.name) for v in model.graph.inputs} | set(model.facts.interface.inputs)
    return {name for name in inputs if name not in own and not name.startswith("optimizer.")}


def _refuse_unknown(batch: Mapping[str, Any], known: Set[str]) -> None:
    unknown = [name for name in batch if name not in known]
    if unknown:
        raise ModelError(
            f"the graph has no input {unknown[0]!r}; it takes {', '.join(sorted(known))}",
            hint="leave it out of the batch",
        )
