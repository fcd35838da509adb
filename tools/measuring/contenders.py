"""Who takes part: torch in its forms, stock ONNX Runtime, and the transformed graph."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fuseline.engine.errors import GateFailed
from fuseline.engine.execution.sessions import cache
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.tolerance import Tolerance
from fuseline.engine.verification.compare import compare
from fuseline.kernels.records import register_records
from fuseline.tools.measuring.subject import PLAIN, Subject

if TYPE_CHECKING:
    from fuseline.exporters.plan import Plan
    from fuseline.tools.measuring.steps import Results, Step

__all__ = [
    "COMPILE",
    "EAGER",
    "OURS",
    "SDPA",
    "STOCK",
    "Contenders",
    "available",
    "check_agreement",
    "release_sessions",
]

OURS, STOCK = "fuseline", "onnxruntime"
EAGER, SDPA, COMPILE = "torch eager", "torch sdpa", "torch compile"
# Far above what another order of sums does to a result, far below what another result is.
_ROUNDING = Tolerance(relative=1e-2, absolute=1e-3, scaled=1e-3, floor=1e-6)


def available(subject: Subject) -> list[str]:
    """Everybody who can run the subject; torch needs a torch model."""
    if subject.is_graph:
        return [OURS, STOCK]
    module = subject.torch_plan(None).model
    with_sdpa = bool(getattr(type(module), "_supports_sdpa", False))
    return [OURS, STOCK, EAGER, *([SDPA] if with_sdpa else []), COMPILE]


class Contenders(ExitStack):
    """Builds them; what torch needs to be set for its runs holds until this is closed."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        register_records()  # native operators are known to a session by them
        self.subject = subject
        self.batch = subject.batch()
        self.callback(release_sessions)

    def build(self, name: str) -> Step:
        """One step (or run) of a contender; any other name is that of a graph that the subject keeps."""
        import torch

        torch.set_num_threads(self.subject.threads)
        if name in (EAGER, SDPA, COMPILE):
            return self._torch(name)
        if name == STOCK:
            return self._stock()
        return self.ours(name)

    def ours(self, graph: str) -> Step:
        from fuseline.tools.measuring.steps import graph_run, native_step

        make = native_step if self.subject.train else graph_run
        return make(self.subject.graph(graph), self.batch, self.subject.threads)

    def _stock(self) -> Step:
        """The plain graph; in training it computes all rows, as ONNX Runtime would by itself."""
        from fuseline.tools.measuring.steps import graph_run, stock_step

        plain = self.subject.graph(PLAIN)
        if not self.subject.train:
            return graph_run(plain, self.batch, self.subject.threads)
        model = Pipeline.resolve("training-stock").run(plain, disable=["select-labelled"]).model
        return stock_step(model, self.batch, self.subject.threads)

    def _torch(self, name: str) -> Step:
        from fuseline.tools.measuring.steps import torch_run, torch_step

        plan = self.subject.torch_plan({EAGER: "eager", SDPA: "sdpa"}.get(name))
        if name == COMPILE:
            plan.model.compile()
            self.callback(_forget_compiled)
        self.enter_context(plan.as_torch_runs())
        if self.subject.train:
            return torch_step(lambda: _called(plan, self.batch)["loss"], plan.model.parameters())
        return torch_run(lambda: _called(plan, self.batch))


def _called(plan: Plan, batch: Results) -> dict[str, Any]:
    import torch

    wrapper = plan.reference or plan.wrapper
    values = wrapper(*[torch.from_numpy(batch[item.name]) for item in plan.inputs])
    return dict(zip(wrapper.output_names, values, strict=True))


def release_sessions() -> None:
    """Give the memory of sessions back before others are built."""
    cache.clear()
    gc.collect()


def _forget_compiled() -> None:
    import torch

    torch.compiler.reset()


def check_agreement(results: dict[str, Results]) -> None:
    """Nobody is compared by time who computes something else."""
    reference = next(name for name in (EAGER, STOCK, *results) if name in results)
    for name, found in results.items():
        for output in sorted(found.keys() & results[reference].keys()):
            differs = compare(output, results[reference][output], found[output], _ROUNDING)
            if differs is not None:
                raise GateFailed(
                    f"{name} does not compute what {reference} does: {differs}",
                    hint="times of different results do not compare; --no-check measures them all the same",
                )
