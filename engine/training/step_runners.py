"""The sessions of a training step: one for each set of outputs that is asked for, over the step's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.bound import BoundRunner
from fuseline.engine.execution.plan import Plan
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import registry
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.gradients import gradient_name
from fuseline.engine.training.optimizer import updates
from fuseline.engine.training.step_state import StepState

__all__ = ["StepRunners", "keep_outputs"]


class StepRunners:
    """Makes each runner when it is first needed; `options` are those of `Plan.of_step`."""

    def __init__(self, model: Model, state: StepState, options: Mapping[str, Any]) -> None:
        self._model = model
        self._state = state
        self._options = options
        self._trainings: dict[frozenset[str], BoundRunner] = {}
        self._evaluations: dict[tuple[str, ...], BoundRunner] = {}
        self.outputs = _forward_outputs(model)
        """The model's own outputs: the loss, the logits, …"""

    def training(self, outputs: Sequence[str]) -> BoundRunner:
        """The step that computes what is asked for and what training needs: logits cost memory traffic."""
        asked = frozenset(outputs)
        if asked not in self._trainings:
            known = {str(v.name) for v in self._model.graph.outputs}
            unknown = sorted(asked - known)
            if unknown:
                listed = ", ".join(sorted(known))
                raise ModelError(f"the graph has no output {unknown[0]!r}; it has {listed}")
            targets = self._state.targets
            kept = known & {*asked, *targets, names.APPLIED}
            self._trainings[asked] = self._runner(keep=tuple(sorted(kept)), targets=targets)
        return self._trainings[asked]

    def evaluation(self, wanted: tuple[str, ...]) -> BoundRunner:
        """The forward graph in evaluation mode, on the same weights."""
        if wanted not in self._evaluations:
            unknown = [name for name in wanted if name not in self.outputs]
            if unknown:
                listed = ", ".join(self.outputs)
                raise ModelError(f"the model has no output {unknown[0]!r}; it has {listed}")
            self._evaluations[wanted] = self._runner("evaluation-mode", keep=wanted, targets={})
        return self._evaluations[wanted]

    def _runner(self, *first: str, keep: tuple[str, ...], targets: Mapping[str, str]) -> BoundRunner:
        passes: list[Pass] = [registry[name]() for name in first]
        passes += [keep_outputs(keep), registry["feed-parameters"]()]
        model = Pipeline.of(*passes).run(self._model).model
        return BoundRunner(Plan.of_step(model, targets=targets, **self._options), self._state)


def keep_outputs(kept: tuple[str, ...]) -> Pass:
    """The pass that leaves a graph these outputs alone."""
    made: Any = registry["keep-outputs"]
    keeping: Pass = made(names=kept)
    return keeping


def _forward_outputs(model: Model) -> list[str]:
    gradients = {gradient_name(v) for v in model.parameters.trainable_values()}
    written = updates(model)
    return [
        str(o.name)
        for o in model.graph.outputs
        if o.name not in gradients and o.name not in written and not str(o.name).startswith("optimizer.")
    ]
