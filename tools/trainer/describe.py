"""What there is to know about a torch model before it is compiled: its obstacles, its identity."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from fuseline.exporters import ExportError
from fuseline.tools.trainer.identity import Reader, file_hash, is_known, is_versioned

__all__ = ["check_hooks", "describe", "without_checkpointing"]

#: What torch keeps in every module, what engines note there, and what only generation reads.
_BOOKKEEPING = frozenset(
    [
        *vars(nn.Module()),
        "_is_accelerate_prepared",
        "_is_hf_initialized",
        "_hf_hook",
        "_old_forward",
        "generation_config",
    ]
)

#: Whose hooks only watch the model: engines, and what transformers collects hidden states with.
_ENGINES = ("accelerate", "deepspeed", "torch", "transformers.utils.output_capturing")
#: Asks for a gradient of the embeddings' output, which only checkpointing in torch needs; adds noise, which
#: the exporter does as well.
_KNOWN = ("make_inputs_require_grads", "neftune_post_forward_hook")


def check_hooks(model: nn.Module) -> None:
    """A hook inside the model may change values, and no graph would call it."""
    for name, called in _hooks(model, ("_forward_hooks", "_forward_pre_hooks")):
        if name:
            raise ExportError(
                f"the hook {called!r} on {name!r} would not run in a graph",
                hint="remove the hook, or train in torch",
            )


def _hooks(model: nn.Module, kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The user's own hooks: the module that each is on, and its name."""
    for name, module in model.named_modules():
        for hook in (hook for kind in kinds for hook in getattr(module, kind).values()):
            owner = getattr(hook, "__module__", None) or ""
            called = getattr(hook, "__name__", None) or type(hook).__name__
            if not owner.startswith(_ENGINES) and called not in _KNOWN:
                yield name, called


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
    """All that decides the graph: code, structure, settings, and which weights train or are tied.

    Parameters are fed to the graph, whatever their values; buffers and other attributes are baked in.
    """
    config: Any = getattr(model, "config", None)
    reader = Reader((*model.modules(), *model.parameters()))
    kinds = {kind: None for module in model.modules() for kind in type(module).__mro__}
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "installed": _installed(kind.__module__ for kind in kinds),
        "code": [[f"{k.__module__}.{k.__qualname__}", reader.of_class(k)] for k in kinds],
        "attention": getattr(config, "_attn_implementation", None),
        "default": str(torch.get_default_dtype()),
        "structure": str(model),
        "modules": [(n, _settings(m, reader)) for n, m in model.named_modules()],
        "tensors": _tensors(model),
        # A graph that was made without them would be found, and never call them.
        "hooks": [
            *(hook for hook in _hooks(model, ("_forward_hooks", "_forward_pre_hooks")) if hook[0]),
            *_hooks(model, ("_backward_hooks", "_backward_pre_hooks")),
        ],
    }


def _installed(modules: Iterable[str]) -> dict[str, str]:
    """Installed packages that no version in the key speaks for, by the file that a class comes from."""
    found = {}
    for name in sorted(set(modules)):
        file = getattr(sys.modules.get(name), "__file__", None)
        if is_known(name) and not is_versioned(name) and file and Path(file).is_file():
            found[name] = file_hash(Path(file))
    return found


def _tensors(model: nn.Module) -> list[tuple[Any, ...]]:
    first: dict[int, str] = {}
    return [
        (n, tuple(t.shape), str(t.dtype), t.requires_grad, first.setdefault(t.data_ptr(), n))
        for n, t in (
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        )
    ]


def _settings(module: nn.Module, reader: Reader) -> dict[str, Any]:
    """The attributes of one module, its buffers included."""
    settings = {k: reader.plain(v) for k, v in vars(module).items() if k not in _BOOKKEEPING}
    if not isinstance(module, _NormBase):  # these are rewritten by every step, and so are fed
        settings["buffers"] = {k: reader.plain(v) for k, v in module._buffers.items()}
    return settings
