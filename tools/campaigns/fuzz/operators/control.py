"""If, Loop, Scan and functions: drawings inside a drawing."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from fuseline.tools.campaigns.fuzz.drawing import FLOATS, Drawing, Unfit, Value
from fuseline.tools.campaigns.fuzz.operators.table import draws, table

__all__ = ["few"]

_DEPTH_LIMIT = 2
FUNCTION_DOMAIN = "local"


def few(g: Drawing, at_most: int = 3) -> None:
    """A few random operators."""
    weights = [w for w, _ in table]
    for _ in range(g.chance.randint(0, at_most)):
        draw = g.chance.choices(table, weights)[0][1]
        try:
            draw(g)
        except Unfit:
            continue


def _depth(g: Drawing) -> int:
    return 0 if g.parent is None else 1 + _depth(g.parent)


def _enter(g: Drawing) -> None:
    if _depth(g) >= _DEPTH_LIMIT:
        raise Unfit("deep enough")


def _like(g: Drawing, x: Value) -> Value:
    """A value of x's type and shape, made in this drawing from x or from one that is there."""
    own = [v for v in g.values if v.dtype == x.dtype and v.shape == x.shape and v.content is None]
    source = g.choose(own) if own and g.maybe(0.7) else x
    op = g.choose(("Neg", "Identity", "Mul", "Add", "Abs", "Relu"))
    operands = [source, x] if op in ("Mul", "Add") else [source]
    return g.one(op, *operands)


def _graph(
    g: Drawing, name: str, inputs: list[Value], outputs: list[Value], typed: bool = True
) -> onnx.GraphProto:
    declared = [helper.make_tensor_value_info(v.name, v.dtype, [None] * v.rank) for v in outputs]
    taken = [
        helper.make_tensor_value_info(v.name, v.dtype, [None] * v.rank if typed else None) for v in inputs
    ]
    return helper.make_graph(g.nodes, name, taken, declared, g.initializers)


@draws(1.2)
def branch(g: Drawing) -> None:
    _enter(g)
    x = g.pick((*FLOATS, TensorProto.INT64, TensorProto.INT32))
    graphs = []
    for name in ("then", "else"):
        inner = g.child()
        few(inner)
        graphs.append(_graph(inner, name, [], [_like(inner, x)]))
    condition = _condition(g)
    result = g.name()
    g.nodes.append(
        helper.make_node("If", [condition.name], [result], then_branch=graphs[0], else_branch=graphs[1])
    )
    g.values.append(Value(result, x.dtype, x.shape))


def _condition(g: Drawing) -> Value:
    style = g.chance.randrange(3)
    if style == 0:
        return g.constant(np.array(g.maybe(0.5)))
    if style == 1:
        return g.input(TensorProto.BOOL, ())
    x = g.pick(FLOATS, (1, 4))
    size = g.one("Size", x)
    if g.opset < 9:
        raise Unfit("Greater of integers came later")
    return g.one("Greater", size, g.constant(np.array(4, np.int64)))


@draws(0.8)
def loop(g: Drawing) -> None:
    """A Loop with one carried value, maybe one that collects, and captures."""
    _enter(g)
    x = g.pick((*FLOATS, TensorProto.INT64))
    inner = g.child()
    step = Value(inner.name(), TensorProto.INT64, ())
    going = Value(inner.name(), TensorProto.BOOL, ())
    state = Value(inner.name(), x.dtype, x.shape)
    inner.values += [step, going, state]
    few(inner)
    results = [inner.one("Identity", going), _like(inner, state)]
    collects = g.maybe(0.5)
    if collects:
        results.append(_like(inner, state))
    trips = g.choose((0, 1, 2, 3))
    count = g.constant(np.array(trips, np.int64))
    condition = g.constant(np.array(True)).name if g.maybe(0.5) else ""
    names = [g.name() for _ in results[1:]]
    body = _graph(inner, "body", [step, going, state], results)
    g.nodes.append(helper.make_node("Loop", [count.name, condition, x.name], names, body=body))
    g.values.append(Value(names[0], x.dtype, x.shape))
    if collects:
        g.values.append(Value(names[1], x.dtype, (trips, *x.shape)))


@draws(0.6)
def scan(g: Drawing) -> None:
    _enter(g)
    if g.opset < 9:
        raise Unfit("Scan had another form")
    x = g.pick(FLOATS, (1, 3))
    inner = g.child()
    state = Value(inner.name(), x.dtype, x.shape[1:])
    row = Value(inner.name(), x.dtype, x.shape[1:])
    inner.values += [state, row]
    few(inner, 2)
    results = [inner.one("Add", _like(inner, state), row), _like(inner, row)]
    start = g.fresh(x.dtype, x.shape[1:])
    names = [g.name(), g.name()]
    body = _graph(inner, "body", [state, row], results)
    g.nodes.append(helper.make_node("Scan", [start.name, x.name], names, body=body, num_scan_inputs=1))
    g.values += [Value(names[0], x.dtype, x.shape[1:]), Value(names[1], x.dtype, x.shape)]


@draws(1.2)
def function(g: Drawing) -> None:
    """A local function of one or two inputs, called once or twice."""
    if g._inside_function() or _depth(g) >= _DEPTH_LIMIT:
        raise Unfit("functions are called from graphs")
    x = g.pick(FLOATS, (0, 3))
    inner = g.child(closed=True)
    formal = [Value(inner.name(), x.dtype, x.shape) for _ in range(g.chance.randint(1, 2))]
    inner.values += formal
    few(inner, 5)
    result = _like(inner, formal[0])
    name = f"F{len(g.functions)}"
    imports = [helper.make_opsetid("", g.opset)]
    given = _given_by_calls(g, inner.nodes) if g.maybe(0.4) else []
    g.functions[name] = helper.make_function(
        FUNCTION_DOMAIN,
        name,
        [v.name for v in formal],
        [result.name],
        inner.nodes,
        imports,
        [a.name for a in given],
    )
    for _ in range(g.choose((1, 1, 2))):
        actual = [x] * len(formal) if g.maybe(0.5) else [x, g.fresh(x.dtype, x.shape)][: len(formal)]
        made = g.name()
        call = helper.make_node(name, [v.name for v in actual], [made], domain=FUNCTION_DOMAIN)
        call.attribute.extend(given)
        g.nodes.append(call)
        g.values.append(Value(made, x.dtype, x.shape))


def _given_by_calls(g: Drawing, nodes: list[onnx.NodeProto]) -> list[onnx.AttributeProto]:
    """Attributes of the body that become the function's own, as the calls give them."""
    given: list[onnx.AttributeProto] = []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) or g.maybe(0.5):
                continue
            own = onnx.AttributeProto()
            own.CopyFrom(attribute)
            own.name = f"p{len(given)}"
            given.append(own)
            reference = onnx.AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name=own.name)
            attribute.CopyFrom(reference)
    return given
