"""Random small graphs of layout operators: the pipeline keeps their outputs and interface, and then rests."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
from hypothesis import given, settings
from onnx import TensorProto, helper, numpy_helper

from fuseline.engine import runtime
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline

SHAPE = (2, 3, 4)
PIPELINE = Pipeline.parse("inference-O1")


class Builder:
    """A chain of nodes over values of known shape."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[tuple[str, tuple[int, ...], int]] = [("x", SHAPE, TensorProto.FLOAT)]

    def constant(self, *numbers: int) -> str:
        name = f"c{len(self.nodes)}"
        array = numpy_helper.from_array(np.array(numbers, np.int64))
        self.nodes.append(helper.make_node("Constant", [], [name], value=array))
        return name

    def node(
        self, op_type: str, inputs: list[str], shape: tuple[int, ...], dtype: int, **attributes: Any
    ) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        self.values.append((name, shape, dtype))


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    builder = Builder()
    builder.node("Abs", ["x"], SHAPE, TensorProto.FLOAT)
    for _ in range(draw(st.integers(1, 10))):
        name, shape, dtype = draw(st.sampled_from(builder.values))
        kind = draw(st.sampled_from(sorted(STEPS)))
        STEPS[kind](draw, builder, name, shape, dtype)
    outputs = draw(st.lists(st.sampled_from(builder.values[1:]), min_size=1, max_size=3, unique=True))
    dynamic = draw(st.booleans())
    declared = ["N", *SHAPE[1:]] if dynamic else list(SHAPE)
    graph = helper.make_graph(
        builder.nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, declared)],
        [helper.make_tensor_value_info(n, t, [None] * len(s)) for n, s, t in outputs],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def _reshape(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    size = int(np.prod(shape))
    target = draw(
        st.sampled_from(
            [t for t in ((24,), (6, 4), (2, 12), (2, 3, 4), (4, 3, 2), (1, 24, 1)) if size == 24] or [shape]
        )
    )
    written = list(target)
    if draw(st.booleans()):
        written[draw(st.integers(0, len(written) - 1))] = -1
    b.node("Reshape", [name, b.constant(*written)], target, dtype)


def _computed_reshape(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    b.node("Shape", [name], (len(shape),), TensorProto.INT64)
    target = b.values.pop()[0]
    b.node("Reshape", [name, target], shape, dtype)


def _transpose(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    perm = draw(st.permutations(range(len(shape))))
    b.node("Transpose", [name], tuple(shape[i] for i in perm), dtype, perm=list(perm))


def _cast(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    to = draw(st.sampled_from([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32]))
    b.node("Cast", [name], shape, to, to=to)


def _unsqueeze(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    axis = draw(st.integers(0, len(shape)))
    b.node("Unsqueeze", [name, b.constant(axis)], (*shape[:axis], 1, *shape[axis:]), dtype)


def _squeeze(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    ones = [i for i, d in enumerate(shape) if d == 1]
    if ones:
        axis = draw(st.sampled_from(ones))
        b.node("Squeeze", [name, b.constant(axis)], (*shape[:axis], *shape[axis + 1 :]), dtype)


def _slice(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    if not shape:
        return
    axis = draw(st.integers(0, len(shape) - 1))
    end = draw(st.sampled_from([1, shape[axis], 1 << 62]))
    size = min(end, shape[axis])
    inputs = [name, b.constant(0), b.constant(end), b.constant(axis)]
    b.node("Slice", inputs, (*shape[:axis], size, *shape[axis + 1 :]), dtype)


def _identity(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    b.node("Identity", [name], shape, dtype)


def _negate(draw: st.DrawFn, b: Builder, name: str, shape: tuple[int, ...], dtype: int) -> None:
    b.node("Neg", [name], shape, dtype)


STEPS = {
    "reshape": _reshape,
    "computed reshape": _computed_reshape,
    "transpose": _transpose,
    "cast": _cast,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "slice": _slice,
    "identity": _identity,
    "negate": _negate,
}


@settings(max_examples=60, derandomize=True)
@given(models())
def test_outputs_stay_and_the_pipeline_rests(proto: onnx.ModelProto) -> None:
    before = Model.from_proto(proto)
    after = PIPELINE.run(before).model
    x = {"x": np.arange(24, dtype=np.float32).reshape(SHAPE) - 7}
    was = runtime.run(runtime.session(before, threads=1), x)
    now = runtime.run(runtime.session(after, threads=1), x)
    assert list(was) == list(now)
    for name, expected in was.items():
        np.testing.assert_array_equal(now[name], expected)
        assert now[name].dtype == expected.dtype
    assert not PIPELINE.run(after).changes
