"""Where torch's autograd stops, the graph's gradient must stop: `detach` and `no_grad` as an operator.

Torch's export keeps both, but its translation to ONNX forgets them. Here they become one torch operator of
our own, which is translated to the graph's stop of the gradient. Only values that depend on a parameter get
one: masks and rotary angles are detached by the hundred, and mean nothing to a gradient.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor, fx

from fuseline.engine.operators.gradient import STOP_GRADIENT
from fuseline.exporters.errors import ExportError
from fuseline.exporters.failures import frame_of
from fuseline.exporters.swapping import swapped

__all__ = ["inference_mode_as_no_grad", "keep_stops", "reads_shape", "stop_translations"]

_DETACH = (torch.ops.aten.detach.default, torch.ops.aten.detach_.default)
_REGIONS = (
    torch.ops.higher_order.wrap_with_set_grad_enabled,
    torch.ops.higher_order.wrap_with_autocast,
)
#: What reads only the shape and type of a tensor.
_BY_SHAPE = frozenset(
    ["empty_like", "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "sym_size", "zeros_like"]
)


@torch.library.custom_op("fuseline::stop_gradient", mutates_args=())
def _stop_gradient(x: Tensor) -> Tensor:
    return x.clone()


@_stop_gradient.register_fake
def _stop_gradient_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def stop_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Torch operator → translation, for `torch.onnx.export`."""
    translate: Any = getattr(opset18, STOP_GRADIENT)
    return {torch.ops.fuseline.stop_gradient.default: lambda x: translate(x)}


@contextmanager
def inference_mode_as_no_grad() -> Iterator[None]:
    """Torch's export records when gradients are switched off, but not when inference mode begins."""
    entered: list[Any] = []

    def enter(context: Any) -> None:
        entered.append(torch.set_grad_enabled(torch.is_grad_enabled() and not context.mode))
        entered[-1].__enter__()

    def leave(context: Any, *error: Any) -> None:
        entered.pop().__exit__(*error)

    with swapped(torch.inference_mode, "__enter__", enter), swapped(torch.inference_mode, "__exit__", leave):
        yield


def keep_stops(program: torch.export.ExportedProgram) -> None:
    """Put our operator where a value that depends on a parameter is detached or leaves a no_grad region."""
    parameters = program.graph_signature.inputs_to_parameters
    trained = [node.name in parameters for node in program.graph.nodes if node.op == "placeholder"]
    _Walk(program.graph_module, trained, enabled=True).run()


class _Walk:
    """One graph: which values carry a gradient; nested regions are walked where they are called."""

    def __init__(self, module: fx.GraphModule, given: list[bool], *, enabled: bool) -> None:
        self.module = module
        self.enabled = enabled
        self.carrying: set[fx.Node] = set()
        #: Region → whether its outputs carry a gradient, and whether torch records one there.
        self.regions: dict[fx.Node, tuple[list[bool], bool]] = {}
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.carrying.update(node for node, carries in zip(inputs, given, strict=True) if carries)

    def run(self) -> list[bool]:
        """Whether each output carries a gradient."""
        for node in list(self.module.graph.nodes):
            if node.op == "call_function":
                self._visit(node)
        self.module.recompile()
        results = self.module.graph.output_node().args[0]
        results = results if isinstance(results, (tuple, list)) else (results,)
        return [result in self.carrying for result in results]

    def _visit(self, node: fx.Node) -> None:
        if node.target in _REGIONS:
            self.regions[node] = self._enter(node)
        elif node.target is operator.getitem and node.args[0] in self.regions:
            carries, enabled = self.regions[node.args[0]]  # type: ignore[index]
            if carries[node.args[1]] and not enabled:  # type: ignore[index]
                self._stop_after(node)
            elif carries[node.args[1]]:  # type: ignore[index]
                self.carrying.add(node)
        elif reads_shape(node) or not any(s in self.carrying for s in node.all_input_nodes):
            return
        elif node.target in _DETACH and self.enabled:
            node.target = torch.ops.fuseline.stop_gradient.default
        elif written := _written(node):
            self._write(node, {_root(value) for value in written})
        elif _is_float(node.meta.get("val")):
            self.carrying.add(node)

    def _enter(self, node: fx.Node) -> tuple[list[bool], bool]:
        """Walk a region; its first argument says whether gradients are recorded, if it is about that."""
        index = next(
            i for i, arg in enumerate(node.args) if isinstance(arg, fx.Node) and arg.op == "get_attr"
        )
        inner = getattr(self.module, str(node.args[index].target))  # type: ignore[union-attr]
        switches = node.target is _REGIONS[0]
        enabled = bool(node.args[0]) if switches else self.enabled
        given = [argument in self.carrying for argument in node.args[index + 1 :]]
        return _Walk(inner, given, enabled=enabled).run(), enabled or not self.enabled

    def _stop_after(self, node: fx.Node) -> None:
        with self.module.graph.inserting_after(node):
            stop = self.module.graph.call_function(torch.ops.fuseline.stop_gradient.default, (node,))
        node.replace_all_uses_with(stop, delete_user_cb=lambda user: user is not stop)
        stop.meta = dict(node.meta)

    def _write(self, node: fx.Node, written: set[fx.Node]) -> None:
        """What is written in place while gradients are off keeps none, wherever it is read later."""
        outside = {value for value in written if value.op == "placeholder"}
        if self.enabled or not outside:
            self.carrying.update(written, [node])
            return
        if outside & self.carrying:
            raise ExportError(
                f"a tensor that is trained is overwritten inside torch.no_grad(){frame_of(node)}",
                hint="write the new value into a tensor of its own",
            )
        with self.module.graph.inserting_before(node):
            for source in [s for s in node.all_input_nodes if s in self.carrying]:
                stop = self.module.graph.call_function(torch.ops.fuseline.stop_gradient.default, (source,))
                stop.meta = dict(source.meta)
                node.replace_input_with(source, stop)


def _root(value: fx.Node) -> fx.Node:
    """The tensor whose memory this is: a view leads to what it shows."""
    while value.op == "call_function" and _shows_first(value) and isinstance(value.args[0], fx.Node):
        value = value.args[0]
    return value


def _shows_first(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.arguments) and schema.arguments[0].alias_info is not None


def _written(node: fx.Node) -> list[fx.Node]:
    """The values that an operator writes into."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given: Mapping[str, Any] = {
        **{argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)},
        **node.kwargs,
    }
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [value for name in written if isinstance(value := given.get(name), fx.Node)]


def reads_shape(node: fx.Node) -> bool:
    """Whether a traced operator ignores the content of what it is given."""
    return str(getattr(node.target, "_opname", "")) in _BY_SHAPE


def _is_float(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_is_float(item) for item in value)
    return isinstance(value, Tensor) and value.is_floating_point()
