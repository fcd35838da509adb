"""Names that mean something: parameters under their torch names, axes under their declared names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import onnx_ir as ir
from torch import Tensor, nn

from fuseline.engine.initializers import add_initializer
from fuseline.engine.parameters import Parameter, ParameterMap
from fuseline.exporters.inputs import Input

__all__ = ["map_parameters", "name_axes"]

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


def map_parameters(
    model: ir.Model, module: nn.Module, *, prefix: str, written: Collection[str] = ()
) -> ParameterMap:
    """Name each weight as torch does and record every name it has; tied weights are stored once.

    Torch's exporter keeps a tied weight under any one of its names, so weights are recognised by memory. What
    nothing reads goes, but a buffer that is `written` has a place even if it is only that.
    """
    graph = model.graph
    found: dict[Any, ir.Value] = {}
    for value in list(graph.initializers.values()):
        raw = getattr(value.const_value, "raw", None)
        if not value.uses() and not value.is_graph_output():
            graph.initializers.pop(value.name or "")
        elif isinstance(raw, Tensor) and (value.name or "").startswith(prefix):
            key = _identity(raw)
            if key in found:
                ir.convenience.replace_all_uses_with(value, found[key])
                graph.initializers.pop(value.name or "")
            else:
                found[key] = value
    mapped = ParameterMap()
    _make_way(graph, {name for name, _, _ in _named_tensors(module)})
    for name, tensor, kind in _named_tensors(module):
        held = found.get(_identity(tensor))
        if held is None and name in written:
            held = add_initializer(graph, name, ir.tensor_adapters.TorchTensor(tensor))
        elif held is not None and not mapped.holds(held.name):
            _rename(graph, held, name)
        mapped.add(
            Parameter(
                name=name,
                value=held.name if held is not None else None,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                trainable=kind == "parameter" and tensor.requires_grad,
                kind=kind,
            )
        )
    return mapped


def _named_tensors(module: nn.Module) -> list[tuple[str, Tensor, Any]]:
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    return [(n, p, "parameter") for n, p in parameters] + [(n, b, "buffer") for n, b in buffers]


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _make_way(graph: ir.Graph, wanted: Collection[str]) -> None:
    """Torch calls a result after its operator, so that a weight's name may be taken: by `mean` or `scale`."""
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name in wanted and not value.is_graph_output():
                value.name = f"{value.name}.computed"


def _rename(graph: ir.Graph, value: ir.Value, name: str) -> None:
    graph.initializers.pop(value.name or "")
    value.name = name
    if value.const_value is not None:
        value.const_value.name = name
    graph.initializers[name] = value


def name_axes(model: ir.Model, inputs: Sequence[Input]) -> None:
    """Replace torch's s12, s34 by the declared names (batch, sequence, …) throughout the graph."""
    names: dict[str, str] = {}
    declared = {item.name: item for item in inputs}
    for value in model.graph.inputs:
        if value.name not in declared or value.shape is None:
            continue
        for axis, name in declared[value.name].dynamic.items():
            symbol = value.shape[axis]
            if isinstance(symbol, ir.SymbolicDim) and symbol.value:
                names.setdefault(str(symbol.value), name)
    values = [v for node in model.graph.all_nodes() for v in node.outputs]
    for value in (*model.graph.inputs, *values):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(dim, names) for dim in value.shape])


def _renamed(dim: int | ir.SymbolicDim, names: dict[str, str]) -> int | str | None:
    if isinstance(dim, int) or dim.value is None:
        return dim if isinstance(dim, int) else None
    return _SYMBOL.sub(lambda symbol: names.get(symbol.group(), symbol.group()), str(dim.value))
