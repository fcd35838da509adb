"""The plan of a run: which graph, in which order, with which session, over which memory."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.block import allocator
from fuseline.engine.execution.weights import is_state
from fuseline.engine.model import Model
from fuseline.engine.properties import Property

__all__ = ["Order", "Plan", "SessionOptions"]

_MMAP_THRESHOLD, _LARGE = -3, 1 << 18

#: runtime: ONNX Runtime chooses; graph: as the nodes stand in the graph, which it then leaves as it is.
Order = Literal["runtime", "graph"]


@dataclass(frozen=True)
class SessionOptions:
    """What a session is made with besides its graph."""

    optimize: str = "all"
    threads: int | None = None
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    #: Plans memory per input shape; where shapes change from run to run, such plans only hold memory.
    memory_pattern: bool = True
    #: The beginning of the names of what the profiler writes; None: nothing is profiled.
    profile: str | None = None
    #: Keeps what is given back for later nodes and runs; the system's allocator hands large blocks back.
    arena: bool = True
    #: Every value at its place in one block, instead of an arena, where we can give the runtime its memory.
    block: bool = False

    @property
    def optimized_graph(self) -> Path:
        """The graph that is really run, written when a session is profiled."""
        return Path(f"{self.profile}.onnx")

    def apply(self, settings: Any, order: Order) -> None:
        """Write what is no argument of `runtime.session` into ONNX Runtime's own options.

        A graph in its own order takes memory as the simulation says: when a node runs, until after the last
        reader. Reuse by the runtime's own plan would hold buffers longer than their values. An arena holds
        half as much again, but without one every large value costs page faults.
        """
        settings.enable_mem_pattern = self.memory_pattern and order == "runtime"
        if self.profile is not None:
            settings.enable_profiling, settings.profile_file_prefix = True, self.profile
            settings.optimized_model_filepath = str(self.optimized_graph)
            # Weights apart: one message could not hold those of a large model.
            weights = "session.optimized_model_external_initializers_file_name"
            settings.add_session_config_entry(weights, f"{self.optimized_graph.name}.data")
        if order == "graph":
            import onnxruntime as ort

            settings.execution_order = ort.ExecutionOrder.PRIORITY_BASED
            block = self.block and allocator() is not None
            settings.enable_cpu_mem_arena = self.arena and not block
            settings.enable_mem_reuse = False
            if block:
                settings.add_session_config_entry("session.use_env_allocators", "1")
            elif not self.arena:
                _give_back_at_once()


@dataclass(frozen=True)
class Plan:
    """A graph whose weights are inputs, ready to become a session.

    `targets` is the layout of the state: output → the input whose memory the output is written to.
    """

    model: Model
    options: SessionOptions = field(default_factory=SessionOptions)
    order: Order = "runtime"
    targets: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = next((n for n in self.model.graph.initializers if is_state(self.model, n)), None)
        if held is not None:
            raise ModelError(
                f"the weight {held!r} is inside the graph, where it cannot be trained or replaced",
                hint="run the pass 'feed-parameters'",
            )
        if self.order == "runtime" and self.model.has(Property.ORDERED):
            raise ModelError(
                "the graph updates weights between the nodes that read them, and must run in its order",
                hint="take optimize='none', or leave the pass 'release-early' out",
            )
        if self.order == "graph" and self.options.optimize != "none":
            raise ModelError(
                "ONNX Runtime's optimisations reorder nodes; keep the order with optimize='none'"
            )

    @classmethod
    def of_step(
        cls,
        model: Model,
        *,
        optimize: str | None = None,
        threads: int | None = None,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
        profile: str | None = None,
        arena: bool = True,
        block: bool = False,
        targets: Mapping[str, str] | None = None,
    ) -> Plan:
        """The plan of a training step, or of a part of one: in the order of the graph.

        Native operators leave nothing for ONNX Runtime's optimiser to do, since weights are inputs; a graph
        without any is left to it, unless `optimize` says otherwise.
        """
        native = any(node.domain not in ("", "ai.onnx", "com.microsoft") for node in model.graph)
        level = optimize or ("none" if native else "all")
        # Batches differ in shape, so that planning memory by shape would only hold it.
        options = SessionOptions(
            level, threads, providers, memory_pattern=False, profile=profile, arena=arena, block=block
        )
        return cls(model, options, "graph" if level == "none" else "runtime", targets or {})

    def key(self) -> str:
        """The same for plans that the same session serves; weights and targets are no part of a session."""
        text = hashlib.sha256(ir.to_proto(self.model.ir).SerializeToString(deterministic=True))
        text.update(f"{self.options}|{self.order}".encode())
        return text.hexdigest()


@cache
def _give_back_at_once() -> None:
    """Have glibc hand every large piece of memory back to the system when it is freed.

    By itself it raises the size from which it does so to that of what was freed last, up to 32 MB, keeps all
    that is smaller in its heap, and then holds nearly twice what is alive.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
