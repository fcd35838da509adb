"""The library as a whole: records, loader, gradients, concurrent sessions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fuseline import kernels
from fuseline.kernels import OPERATORS, loader
from fuseline.kernels.evaluate import build_model, create_session, evaluate


def test_every_differentiable_operator_names_a_backward_of_its_own() -> None:
    for operator in OPERATORS.values():
        for node in operator.gradient:
            if node.domain != kernels.DOMAIN:
                continue
            backward = OPERATORS[node.op_type]
            assert len(node.inputs) == len(backward.inputs), operator.name
            assert node.outputs == tuple(f"GI({i})" for i in range(len(backward.outputs))), operator.name


def test_names_are_prefixed_and_schemas_build() -> None:
    for name, operator in OPERATORS.items():
        assert name.startswith("Fused")
        assert operator.schema().name == name


def test_output_shapes_follow_the_record() -> None:
    shapes = OPERATORS["FusedLayerNorm"].output_shapes({"x": ("batch", 7, 16), "scale": (16,)})
    assert shapes == {"y": ("batch", 7, 16), "mean": ("batch", 7), "inv_std": ("batch", 7)}
    assert OPERATORS["FusedCrossEntropy"].output_shapes({})["loss"] == ()
    assert OPERATORS["FusedLayerNorm"].output_shapes({})["y"] is None


def test_the_runtime_infers_symbolic_shapes() -> None:
    model = build_model(
        OPERATORS["FusedLayerNorm"], [np.zeros(s, np.float32) for s in ((2, 3, 5), (5,), (5,))]
    )
    for axis, symbol in enumerate(("batch", "tokens")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = symbol
    assert create_session(model).get_outputs()[0].shape == ["batch", "tokens", 5]


def test_unknown_sizes_are_not_taken_for_equal() -> None:
    """Were they, the runtime would put the second table into the first one's buffer."""
    text = """<ir_version: 8, opset_import: ["" : 18, "fuseline" : 1]>
    g (float[a,b] dx, float[c,d] dy, int64[n] i, int64[m] j, int64[2] p, int64[2] q)
        => (float[1] r, float[1] s)
    {
        none = Constant<value_ints = [-1]>()
        one = Constant<value_ints = [1]>()
        first = ConstantOfShape(p)
        x = fuseline.FusedEmbeddingGrad(dx, i, first, none)
        sum_x = ReduceSum<keepdims=0>(x)
        r = Reshape(sum_x, one)
        second = ConstantOfShape(q)
        rows = Add(dy, r)
        y = fuseline.FusedEmbeddingGrad(rows, j, second, none)
        sum_y = ReduceSum<keepdims=0>(y)
        s = Reshape(sum_y, one)
    }"""
    feeds = {"dx": np.ones((2, 3), np.float32), "dy": np.ones((4, 50), np.float32)}
    feeds |= {"i": np.array([0, 1]), "j": np.array([0, 5, 5, 2])}
    feeds |= {"p": np.array([2, 3]), "q": np.array([6, 50])}
    session = create_session(onnx.parser.parse_model(text))
    first, second = session.run(None, feeds)
    assert (first.item(), second.item()) == (6, 4 * 50 * 7)


def test_trailing_outputs_may_be_left_out() -> None:
    model = build_model(OPERATORS["FusedLayerNorm"], [np.ones(s, np.float32) for s in ((2, 3), (3,), (3,))])
    del model.graph.output[1:]
    del model.graph.node[0].output[1:]
    session = create_session(model)
    assert session.run(None, {f"in{i}": np.ones(s, np.float32) for i, s in enumerate(((2, 3), (3,), (3,)))})


def test_unknown_attributes_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"fuseline.FusedLayerNorm has no attribute 'eps'; it knows \['epsilon'\]"
    ):
        OPERATORS["FusedLayerNorm"].node(["x", "s", "b"], ["y"], {"eps": 1e-5})


def test_a_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSELINE_KERNELS", "off")
    assert not kernels.available()
    with pytest.raises(kernels.KernelsMissing, match="install fuseline with a C\\+\\+ compiler present"):
        kernels.require()


def test_another_library_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = tmp_path / "mine.so"
    chosen.write_bytes(kernels.require().read_bytes())
    monkeypatch.setenv("FUSELINE_KERNELS", str(chosen))
    assert loader.require() == chosen


def test_concurrent_sessions_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(1)
    failures: list[str] = []

    def work(seed: int) -> None:
        local = np.random.default_rng(seed)
        q, k, v, dy = (local.standard_normal((1, 40 + seed, 2, 16)).astype(np.float32) for _ in range(4))
        empty = np.zeros(0, np.float32)
        forward: list[Any] = [q, k, v, empty, empty, np.array([0.1], np.float32), np.array([seed])]
        expected: list[Any] | None = None
        for _ in range(15):
            saved = evaluate(OPERATORS["FusedAttention"], forward, 2)
            found = saved + evaluate(OPERATORS["FusedAttentionGrad"], [dy, *forward[:6], *saved], 2)
            expected = expected or found
            if any(not np.array_equal(a, b) for a, b in zip(found, expected, strict=True)):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(int(seed),)) for seed in rng.permutation(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
