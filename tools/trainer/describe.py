"""What there is to know about a torch model before it is compiled: its task, its obstacles, its identity."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from fuseline.exporters import ExportError, Task
from fuseline.exporters.tasks import infer_task

__all__ = ["check_hooks", "describe", "file_hash", "task_of", "without_checkpointing"]

#: Engines whose hooks only watch the model.
_ENGINES = ("accelerate", "deepspeed", "torch")


def task_of(model: nn.Module) -> Task:
    """The task by the class's name, or by that of the first base class that has one."""
    config = getattr(model, "config", None)
    for kind in type(model).__mro__:
        try:
            return infer_task(kind.__name__, config)
        except ExportError:
            if kind is nn.Module:
                break
    return infer_task(type(model).__name__, config)


def check_hooks(model: nn.Module) -> None:
    """A hook inside the model may change values, and no graph would call it."""
    for name, module in model.named_modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            owner = getattr(hook, "__module__", None) or ""
            if name and not owner.startswith(_ENGINES):
                raise ExportError(
                    f"the hook {getattr(hook, '__name__', hook)!r} on {name!r} would not run in a graph",
                    hint="remove the hook (NEFTune is one), or train in torch",
                )


@contextmanager
def without_checkpointing(model: Any) -> Iterator[None]:
    """Checkpointing trades memory in torch; in the graph, recompute passes of the pipeline do."""
    if not getattr(model, "is_gradient_checkpointing", False):
        yield
        return
    model.gradient_checkpointing_disable()
    try:
        yield
    finally:
        model.gradient_checkpointing_enable()


def describe(model: nn.Module) -> dict[str, Any]:
    """All that decides the graph: code, structure, settings, and which weights train or are tied."""
    config: Any = getattr(model, "config", None)
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    rows = [
        (n, tuple(t.shape), str(t.dtype), t.requires_grad, first.setdefault(t.data_ptr(), n))
        for n, t in tensors
    ]
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "source": _source_hash(type(model)),
        "config": config.to_dict() if hasattr(config, "to_dict") else None,
        "attention": getattr(config, "_attn_implementation", None),
        "structure": str(model),
        "settings": [(n, _plain(m)) for n, m in model.named_modules()],
        "tensors": rows,
    }


def _plain(module: nn.Module) -> dict[str, Any]:
    return {
        k: v
        for k, v in vars(module).items()
        if isinstance(v, (bool, int, float, str)) and not k.startswith("_") and k != "training"
    }


def _source_hash(kind: type) -> str:
    try:
        return file_hash(Path(inspect.getfile(kind)))
    except (TypeError, OSError):  # typed into a session: good for this process alone
        return f"process {os.getpid()}, class {id(kind)}"


def file_hash(path: Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
