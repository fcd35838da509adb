"""`torch.autograd.Function`: its own backward, in a graph whose gradient is built from the forward.

A backward is linear in the gradient that it gets: dx = B·dy, where B depends on what the forward saved. So
the forward's result is written as stop(y) + (s − stop(s)) with s = Bᵀ·x: that is y itself, and its gradient
is B·dy whoever builds it. Bᵀ·x is the gradient of ⟨B·g, x⟩ with respect to g, computed while torch traces.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import Function
from torch.utils.checkpoint import CheckpointFunction

from fuseline.exporters.errors import ExportError
from fuseline.exporters.failures import frame_of
from fuseline.exporters.stop_gradients import reads_shape

__all__ = ["check_linear", "traced_apply", "traced_functions"]


@torch.library.custom_op("fuseline::cotangent", mutates_args=())
def _cotangent(y: Tensor) -> Tensor:
    """Where a backward's incoming gradient stands while it is traced; nothing may depend on its value."""
    return torch.zeros_like(y)


@_cotangent.register_fake
def _cotangent_shape(y: Tensor) -> Tensor:
    return torch.empty_like(y)


@contextmanager
def traced_functions() -> Iterator[None]:
    """Every `Function.apply` goes through `traced_apply`, aliases like `ste = Ste.apply` included.

    An alias holds the original method, wherever it is kept: so it is the method's code that is exchanged.
    """
    method: Any = Function.apply.__func__  # type: ignore[attr-defined]
    before = method.__code__
    method.__code__ = _Redirected.apply.__code__
    try:
        yield
    finally:
        method.__code__ = before


class _Redirected:
    """Code for the method of a class: its one cell, `__class__`, is what torch's own code has as well."""

    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        from fuseline.exporters.custom_functions import traced_apply

        assert __class__  # type: ignore[name-defined]
        return traced_apply(cls, *args, **kwargs)


class _Context:
    """What a Function's forward and backward see as `ctx`."""

    def __init__(self, needed: Sequence[bool]) -> None:
        self.needs_input_grad = tuple(needed)
        self.saved_tensors: tuple[Any, ...] = ()
        self.constant: set[int] = set()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """For forward-mode differentiation, which is not asked for here."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.constant.update(id(tensor) for tensor in tensors)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Results that are inputs written in place; the graph has values, not memory."""

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients are always given here."""


def traced_apply(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a Function so that the graph gets its backward too."""
    if function is CheckpointFunction:
        # Recomputing is the graph's own business: (function, preserve_rng_state, *arguments).
        return args[0](*args[2:])
    needed = [isinstance(a, Tensor) and a.requires_grad for a in args]
    context = _Context(needed)
    stopped = [a.detach() if need else a for a, need in zip(args, needed, strict=True)]
    with torch.no_grad():
        result = _forward(function, context, stopped, kwargs)
    if not any(needed) or not torch.is_grad_enabled():
        return result
    results = result if isinstance(result, tuple) else (result,)
    try:
        parts = _surrogates(function, context, results, args, needed)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            f"the backward of {_described(function)} cannot be part of a graph: {error}".splitlines()[0],
            hint="write it with torch operators on its incoming gradients, or train this model in torch",
        ) from error
    made = tuple(r if s is None else r + (s - s.detach()) for r, s in zip(results, parts, strict=True))
    return made if isinstance(result, tuple) else made[0]


def _forward(function: Any, context: _Context, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if function.setup_context is Function.setup_context:
        return function.forward(context, *args, **kwargs)
    result = function.forward(*args, **kwargs)
    function.setup_context(context, tuple(args), result)
    return result


def _surrogates(
    function: Any, context: _Context, results: Sequence[Any], args: Sequence[Any], needed: Sequence[bool]
) -> list[Tensor | None]:
    """For each result s = Bᵀ·x, or None where no gradient flows back through it."""
    with torch.enable_grad():
        incoming = [_incoming(result, context) for result in results]
        backward = inspect.unwrap(function.backward)
        outgoing = backward(context, *incoming)
        outgoing = outgoing if isinstance(outgoing, tuple) else (outgoing,)
        flows = [
            (gradient, argument)
            for gradient, argument, need in zip(outgoing, args, needed, strict=False)
            if need and isinstance(gradient, Tensor) and gradient.requires_grad
        ]
        asked = [g for g in incoming if g.requires_grad]
        if not flows or not asked:
            return [None] * len(results)
        gradients, arguments = zip(*flows, strict=True)
        found = iter(torch.autograd.grad(gradients, asked, grad_outputs=arguments, allow_unused=True))
    return [next(found) if g.requires_grad else None for g in incoming]


def _incoming(result: Any, context: _Context) -> Tensor:
    if not isinstance(result, Tensor):
        raise ExportError("a result of a torch.autograd.Function is no tensor")
    gradient: Tensor = torch.ops.fuseline.cotangent(result.detach())
    differentiable = result.is_floating_point() and id(result) not in context.constant
    return gradient.requires_grad_() if differentiable else gradient


def _described(function: Any) -> str:
    file = inspect.getsourcefile(function) or "?"
    _, line = inspect.getsourcelines(function)
    return f"{function.__name__} at {file.rsplit('site-packages/', 1)[-1]}:{line}"


def check_linear(program: torch.export.ExportedProgram) -> None:
    """Refuse a backward that is not linear: one of which more is left in the graph than Bᵀ."""
    live = _live(program.graph)
    pending = [n for n in program.graph.nodes if n.target is torch.ops.fuseline.cotangent.default]
    for node in (user for cotangent in pending for user in _users(cotangent)):
        if node in live:
            raise ExportError(
                "the backward of a torch.autograd.Function is not linear in its incoming "
                f"gradient{frame_of(node)}",
                hint="clip or rescale gradients after the backward pass, or train this model in torch",
            )


def _users(node: fx.Node) -> Iterator[fx.Node]:
    """What reads the value of a node rather than its shape."""
    return (user for user in node.users if not reads_shape(user))


def _live(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that the graph's outputs are computed from."""
    pending = list(graph.output_node().all_input_nodes)
    live = set(pending)
    while pending:
        for source in pending.pop().all_input_nodes:
            if source not in live:
                live.add(source)
                pending.append(source)
    return live
