"""Gradients of a training graph, made by ONNX Runtime's gradient builder.

The builder sees the graph with its weights as inputs, so that nothing is folded and large weights cost
nothing. Only what it adds is taken over: the forward nodes stay the ones they were, with their provenance.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from fuseline.engine.errors import ModelError, PassError
from fuseline.engine.execution.weights import weights_as_inputs
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.operators import Trait, libraries, record
from fuseline.engine.operators.gradient import STOP_GRADIENT
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY
from fuseline.engine.training.definitions import register_definitions
from fuseline.engine.training.edges import differentiable_inputs

__all__ = [
    "LOSS_GRADIENT",
    "build_gradients",
    "gradient_name",
    "loss_name",
    "reachable_values",
]

LOSS_GRADIENT = "loss_grad"
"""The graph input that scales all gradients: 1, a loss scale, or 1 / accumulation steps."""

_SMALL = 256
"""Constants of more elements than this are shown to the builder by type alone."""


def gradient_name(value: str) -> str:
    """The name of the graph output that holds the gradient of `value`."""
    return f"{value}_grad"


def loss_name(model: Model) -> str:
    """The name of the output that is minimised: the one that the facts name, or else the first output."""
    name = model.facts.training.loss or (model.graph.outputs[0].name if model.graph.outputs else None)
    if name is None or name not in {o.name for o in model.graph.outputs}:
        raise ModelError(
            f"the graph has no output {name!r} to minimise",
            hint="export with train=True, so that the loss is part of the graph",
        )
    return str(name)


def build_gradients(model: Model, *, trainable: Sequence[str] | None = None) -> Model:
    """A copy of `model` with an output `<value>_grad` for each trainable value that the loss depends on.

    The gradient of the loss is the new scalar input `loss_grad`; feed 1 for plain gradients. Trainable values
    (default: those of the parameter map) remain initializers, or inputs if they were.
    """
    loss = loss_name(model)
    wanted = list(trainable) if trainable is not None else model.parameters.trainable_values()
    reachable = reachable_values(model, loss)
    names = [n for n in wanted if n in reachable]
    if not names:
        raise PassError(
            f"no trainable value leads to the output {loss!r}",
            hint="is the loss in the graph, and are the weights in the parameter map trainable?",
        )
    built = _build(_stripped(model), loss, names)
    result = model.clone()
    _take_over(result.graph, built, loss, names)
    return result


def reachable_values(model: Model, output: str) -> set[str]:
    """The names of all values that a gradient of `output` reaches."""
    pending = [v for v in model.graph.outputs if v.name == output]
    seen = set(pending)
    while pending:
        producer = pending.pop().producer()
        if producer is None or producer.op_type == STOP_GRADIENT:
            continue
        captured = set(read_by(producer)).difference(producer.inputs)
        for value in (*differentiable_inputs(producer), *captured):
            if value not in seen:
                seen.add(value)
                pending.append(value)
    return {v.name for v in seen if v.name}


def _stripped(model: Model) -> ir.Model:
    """The forward graph with parameters and large constants as inputs, and what is stopped too: cut off."""
    copy = model.ir.clone()
    weights_as_inputs(copy, lambda name, tensor: model.parameters.holds(name) or tensor.size > _SMALL)
    for node in [n for n in copy.graph if n.op_type == STOP_GRADIENT]:
        _cut(copy.graph, node)
    return copy


def _cut(graph: ir.Graph, stop: ir.Node) -> None:
    """Make the output of a node an input of the graph."""
    source, old = stop.inputs[0], stop.outputs[0]
    assert source is not None
    fed = ir.Value(name=old.name, type=old.type or source.type, shape=old.shape or source.shape)
    old.replace_all_uses_with(fed, replace_graph_outputs=True)
    graph.remove(stop, safe=True)
    graph.inputs.append(fed)


def _build(forward: ir.Model, loss: str, names: Sequence[str]) -> ir.Model:
    import onnxruntime as ort
    from onnxruntime.capi import _pybind_state as native

    if not hasattr(native, "GradientGraphBuilder"):
        raise PassError(
            f"onnxruntime {ort.__version__} cannot build gradients",
            hint="install onnxruntime-training-cpu 1.19.2 instead of onnxruntime (`fuseline doctor`)",
        )
    register_definitions()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    for library in libraries():
        options.register_custom_ops_library(str(library))
    ort.set_default_logger_severity(3)
    serialized = ir.to_proto(forward).SerializeToString()
    try:
        builder = native.GradientGraphBuilder(serialized, {loss}, set(names), loss, options)
        builder.build()
        return ir.from_proto(onnx.load_from_string(builder.get_model()))
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        reason = str(error).strip().splitlines()[0]
        raise PassError(
            f"ONNX Runtime's gradient builder refuses the graph: {reason}",
            hint="the library of the operator's domain is not loaded (`fuseline doctor`)"
            if "is not a registered function/op" in reason
            else "'check-trainable' lists every node without a gradient",
        ) from error
    finally:
        ort.set_default_logger_severity(2)


def _take_over(graph: ir.Graph, built: ir.Model, loss: str, names: Sequence[str]) -> None:
    """Add to `graph` what the builder added or changed, looking up values by name."""
    for domain, version in built.graph.opset_imports.items():
        if any(n.domain == domain for n in built.graph):
            graph.opset_imports.setdefault(domain, version)
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    values.update({v.name: v for n in graph for v in n.outputs if v.name})
    forward: dict[str | None, ir.Node] = {n.name: n for n in graph}
    _add_inputs(graph, built.graph, values, loss)
    for node in built.graph:
        known = forward.get(node.name)
        if known is None:
            graph.append(_imported(node, values, _forward_of(node, forward)))
        elif _differs(known, node):
            _exchange(graph, known, node, values)
    gradients = [values[gradient_name(n)] for n in names]
    for name, gradient in zip(names, gradients, strict=True):
        gradient.type, gradient.shape = values[name].type, values[name].shape
    graph.outputs.extend(gradients)
    _remove_dead(graph, forward)


def _remove_dead(graph: ir.Graph, forward: dict[str | None, ir.Node]) -> None:
    """Drop gradient nodes that lead to no gradient that was asked for."""
    for node in reversed(list(graph)):
        dead = not any(v.uses() or v.is_graph_output() for v in node.outputs)
        if dead and node.name not in forward:
            graph.remove(node, safe=True)


def _add_inputs(graph: ir.Graph, built: ir.Graph, values: dict[str, ir.Value], loss: str) -> None:
    seed = ir.Value(name=LOSS_GRADIENT, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([]))
    graph.inputs.append(seed)
    values[f"{loss}_grad"] = values[LOSS_GRADIENT] = seed
    for name, initializer in built.initializers.items():
        if name not in values and initializer.const_value is not None:
            content = _without_axis(initializer, initializer.const_value)
            shape = ir.Shape(content.numpy().shape)
            values[name] = ir.Value(name=name, type=initializer.type, shape=shape, const_value=content)
            graph.register_initializer(values[name])


def _without_axis(constant: ir.Value, content: ir.TensorProtocol) -> ir.TensorProtocol:
    """A number that the builder wrote as a vector of one: beside a scalar, its gradient became a vector."""
    users = [record(node) for node, _ in constant.uses()]
    scales = all(user is not None and user.has(Trait.ELEMENTWISE) for user in users)
    if tuple(content.shape) != (1,) or not content.dtype.is_floating_point() or not scales:
        return content
    return ir.tensor(content.numpy().reshape(()), dtype=content.dtype, name=content.name)


def _differs(known: ir.Node, node: ir.Node) -> bool:
    """Whether the builder changed a forward node (batch norm and max pooling get more outputs)."""
    return known.op_type != node.op_type or len(known.outputs) < sum(1 for v in node.outputs if v.name)


def _exchange(graph: ir.Graph, known: ir.Node, node: ir.Node, values: dict[str, ir.Value]) -> None:
    new = _imported(node, values, known)
    graph.insert_before(known, new)
    for old, value in zip(known.outputs, new.outputs, strict=False):
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        value.type, value.shape = old.type, old.shape
    graph.remove(known, safe=True)


def _imported(node: ir.Node, values: dict[str, ir.Value], origin: ir.Node | None) -> ir.Node:
    """A copy of the builder's node over our values; it inherits the origin's place in the torch model."""
    copy = ir.Node(
        node.domain,
        node.op_type,
        [values[v.name] if v is not None and v.name else None for v in node.inputs],
        list(node.attributes.values()),
        outputs=[
            ir.Value(name=_output_name(node, i), type=v.type, shape=v.shape)
            for i, v in enumerate(node.outputs)
        ],
        name=node.name,
    )
    values.update({v.name: v for v in copy.outputs if v.name})
    for key in (MODULE_KEY, SOURCE_KEY):
        if origin is not None and key in origin.metadata_props:
            copy.metadata_props[key] = origin.metadata_props[key]
    return copy


def _output_name(node: ir.Node, index: int) -> str:
    """An unwanted output has no name, but for the last one of a custom operator.

    Empty names at the end get lost, and then its shape inference writes where there is no output.
    """
    name = node.outputs[index].name or ""
    is_last = index == len(node.outputs) - 1
    if name or not is_last or node.domain in ("", "ai.onnx", "com.microsoft"):
        return name
    return f"{node.name}_unused_{index}"


def _forward_of(node: ir.Node, forward: dict[str | None, ir.Node]) -> ir.Node | None:
    """The forward node that a gradient node belongs to; the builder names it `<forward>_Grad/<op>_<n>`."""
    return forward.get((node.name or "").rsplit("_Grad/", 1)[0])
