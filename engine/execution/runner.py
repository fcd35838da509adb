"""The runner: a session on a plan, with its inputs sorted into a batch's and the state's.

`BoundRunner` feeds it numpy arrays over memory that is bound once, `DirectRunner` torch tensors whose
addresses may be others at every run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from pathlib import Path

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.block import Block, allocator
from fuseline.engine.execution.plan import Plan
from fuseline.engine.execution.sessions import cache
from fuseline.engine.training.dropout import SEED
from fuseline.engine.type_names import data_type

__all__ = ["Runner"]


class Runner:
    """What both ways of feeding have in common."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = plan.model
        self._session = cache.get(plan)
        self._types = {i.name: data_type(i.type) for i in self._session.get_inputs()}
        self.outputs = [o.name for o in self._session.get_outputs()]
        self.produced = frozenset(self.outputs)
        library = allocator() if plan.options.block and plan.order == "graph" else None
        self._block = Block(library) if library is not None else None
        self.random = SEED in self._types or any(n.op_type == "Dropout" for n in self.model.nodes())

    @property
    def placed(self) -> tuple[int, int] | None:
        """Values of the last run that lay in the block, and its size by plan; None without one."""
        return (self._block.placed, self._block.size) if self._block is not None else None

    def placing(self, shapes: Hashable) -> contextlib.AbstractContextManager[None]:
        """Around a run on these shapes: its values have their places, where there is a block for them."""
        return contextlib.nullcontext() if self._block is None else self._block.run(shapes)

    def end_profiling(self) -> Path:
        """Stop the profiler; gives its file."""
        return Path(self._session.end_profiling())

    def accepts(self, name: str) -> bool:
        return name in self._types

    def check_outputs(self, wanted: tuple[str, ...]) -> None:
        unknown = [name for name in wanted if name not in self.produced]
        if unknown:
            raise ModelError(f"the graph has no output {unknown[0]!r}; it has {', '.join(self.outputs)}")

    def failure(self, error: Exception) -> ModelError:
        """ONNX Runtime raises a dozen unrelated types; this is the one that users see."""
        import onnxruntime as ort

        first = str(error).strip().splitlines()[0][:400] if str(error).strip() else type(error).__name__
        return ModelError(f"ONNX Runtime {ort.__version__} failed in the step: {first}")
