"""Weights as inputs of a graph, so that they are fed and never folded, and as initializers again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from fuseline.engine.initializers import set_content
from fuseline.engine.model import Model

__all__ = ["fill_inputs", "is_state", "weights_as_initializers", "weights_as_inputs"]


def is_state(model: Model, name: str) -> bool:
    """Whether a value is a parameter or buffer of the map, or overwritten by the step."""
    return model.parameters.holds(name) or name in model.facts.training.updates.values()


def weights_as_inputs(
    model: ir.Model, chosen: Callable[[str, ir.TensorProtocol], bool]
) -> dict[str, ir.TensorProtocol]:
    """Turn the chosen initializers into inputs, in place; gives their contents by name."""
    graph = model.graph
    contents: dict[str, ir.TensorProtocol] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or not chosen(name, tensor):
            continue
        contents[name] = tensor
        set_content(value, tensor)  # an input has to say what an initializer's content said
        del graph.initializers[name]
        value.const_value = None
        if not value.is_graph_input():
            graph.inputs.append(value)
    return contents


def weights_as_initializers(model: Model, originals: Mapping[str, Any]) -> Model:
    """A copy with these parameters (original name → array or torch tensor) inside the graph again."""
    copy = model.clone()
    known = {n: _array(a) for n, a in originals.items() if n in copy.parameters}
    contents = copy.parameters.to_graph(known)
    fill_inputs(copy.graph, contents)
    return copy


def fill_inputs(graph: ir.Graph, contents: Mapping[str, Any]) -> None:
    """Turn the inputs of these names into initializers (name → array or tensor), in place."""
    for value in list(graph.inputs):
        if value.name is not None and value.name in contents:
            graph.inputs.remove(value)
            set_content(value, contents[value.name])
            graph.register_initializer(value)


def _array(tensor: Any) -> Any:
    return tensor.detach().numpy() if hasattr(tensor, "detach") else tensor
