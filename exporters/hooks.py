"""Hooks on gradients: a graph calls no Python, so a model that has them is refused."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as registry

from fuseline.exporters.errors import ExportError
from fuseline.exporters.swapping import swapped

__all__ = ["check_backward_hooks", "refused_tensor_hooks"]

_HINT = "remove the hook, or train this model in torch"


def check_backward_hooks(model: nn.Module) -> None:
    """Refuse modules that want to see or change gradients."""
    everywhere = [*registry._global_backward_hooks.values(), *registry._global_backward_pre_hooks.values()]
    for hook in everywhere:
        raise ExportError(f"a global backward hook is registered{_defined(hook)}", hint=_HINT)
    for path, module in model.named_modules():
        for hook in (*module._backward_hooks.values(), *module._backward_pre_hooks.values()):
            where = f"{path or type(model).__name__} has a backward hook{_defined(hook)}"
            raise ExportError(f"{where}, which a graph cannot call", hint=_HINT)


@contextmanager
def refused_tensor_hooks() -> Iterator[None]:
    """`tensor.register_hook` while tracing is an error that names the line."""

    def register_hook(tensor: Tensor, hook: Any) -> Any:
        if not tensor.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        caller = sys._getframe(1)
        file = caller.f_code.co_filename.rsplit("site-packages/", 1)[-1]
        raise ExportError(
            f"a hook is registered on a tensor at {file}:{caller.f_lineno}, which a graph cannot call",
            hint=_HINT,
        )

    with ExitStack() as stack:
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            stack.enter_context(swapped(torch.Tensor, name, register_hook))
        yield


def _defined(hook: Any) -> str:
    """Where the hook's code stands."""
    try:
        file, (_, line) = inspect.getsourcefile(hook), inspect.getsourcelines(hook)
    except (TypeError, OSError):
        return ""
    return f" ({(file or '').rsplit('site-packages/', 1)[-1]}:{line})"
