"""The parameter map: whatever happens to a weight in the graph, the original comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.parameter_steps import Cast, Reshape, Step, Transpose
from fuseline.engine.parameters import Parameter, ParameterMap


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_steps_invert() -> None:
    weights = ParameterMap([Parameter("w", "w", (2, 6))])
    weights.transform("w", Transpose((1, 0)))
    weights.transform("w", Reshape((6, 2), (3, 4)))
    original = {"w": random(2, 6)}
    graph = weights.to_graph(original)
    assert graph["w"].shape == (3, 4)
    np.testing.assert_array_equal(weights.from_graph(graph)["w"], original["w"])


def test_packed_parts_come_back_under_their_own_names() -> None:
    names = ["query", "key", "value"]
    weights = ParameterMap([Parameter(n, n, (4, 8)) for n in names])
    for n in names:
        weights.transform(n, Transpose((1, 0)))
    weights.pack(dict.fromkeys(names, 4), axis=1, into="qkv")
    weights.transform("qkv", Transpose((1, 0)))
    original = {n: random(4, 8) + i for i, n in enumerate(names)}
    graph = weights.to_graph(original)
    np.testing.assert_array_equal(graph["qkv"], np.concatenate([original[n] for n in names], axis=0))
    for n in names:
        np.testing.assert_array_equal(weights.from_graph(graph)[n], original[n])


def test_a_value_with_a_missing_part_is_not_made() -> None:
    weights = ParameterMap([Parameter("a", "a", (1, 2)), Parameter("b", "b", (1, 2))])
    weights.pack({"a": 1, "b": 1}, axis=0, into="ab")
    assert weights.to_graph({"a": random(1, 2)}) == {}


def test_tied_names_share_one_value() -> None:
    weights = ParameterMap([Parameter("embed", "embed", (5, 3)), Parameter("head", "head", (5, 3))])
    weights.rename("head", "embed")
    assert weights.trainable_values() == ["embed"]
    content = random(5, 3)
    back = weights.from_graph({"embed": content})
    assert set(back) == {"embed", "head"}


def test_frozen_and_lost_parameters() -> None:
    weights = ParameterMap([Parameter("a", "a", (1,)), Parameter("b", "b", (1,))])
    weights.set_trainable(["a"], False)
    assert weights.trainable_values() == ["b"]
    weights.lose("b")
    assert weights["b"].value is None
    assert weights.trainable_values() == []


def test_cast_returns_to_the_original_type() -> None:
    weights = ParameterMap([Parameter("w", "w", (3,))])
    weights.transform("w", Cast("float32", "float16"))
    graph = weights.to_graph({"w": random(3)})
    assert graph["w"].dtype == np.float16
    assert weights.from_graph(graph)["w"].dtype == np.float32


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_steps_serve_numpy_and_torch_alike(kind: str) -> None:
    weights = ParameterMap([Parameter(n, n, (2, 3)) for n in "ab"])
    for n in "ab":
        weights.transform(n, Transpose((1, 0)))
    weights.pack({"a": 3, "b": 3}, axis=0, into="ab")
    weights.transform("ab", Transpose((1, 0)))
    weights.transform("ab", Cast("float32", "float16"))
    weights.transform("ab", Reshape((2, 6), (12,)))
    arrays = {"a": random(2, 3).astype(np.float16).astype(np.float32)}
    arrays["b"] = arrays["a"] + 1
    given = arrays if kind == "numpy" else {n: torch.from_numpy(a) for n, a in arrays.items()}
    graph = weights.to_graph(given)
    assert "float16" in str(graph["ab"].dtype)
    back = weights.from_graph(graph)
    for name, array in arrays.items():
        assert "float32" in str(back[name].dtype)
        np.testing.assert_array_equal(np.asarray(back[name]), array.astype(np.float16))


def test_a_step_of_ones_own_registers_by_being_defined() -> None:
    @dataclass(frozen=True)
    class Negate(Step):
        kind = "test-negate"

        def apply(self, array: Any) -> Any:
            return -array

        invert = apply

    weights = ParameterMap([Parameter("w", "w", (3,))])
    weights.transform("w", Negate())
    weights = ParameterMap.from_json(weights.to_json())
    graph = weights.to_graph({"w": random(3)})
    np.testing.assert_array_equal(graph["w"], -random(3))
    np.testing.assert_array_equal(weights.from_graph(graph)["w"], random(3))
    with pytest.raises(ModelError, match="'test-negate' has no gradient"):
        weights["w"].gradient_from_graph(graph["w"])


def test_an_unknown_step_is_refused() -> None:
    weights = ParameterMap([Parameter("w", "w", (2, 3))])
    weights.transform("w", Transpose((1, 0)))
    text = weights.to_json()
    with pytest.raises(ModelError, match="a step 'transposed' that is not known here"):
        ParameterMap.from_json(text.replace('"transpose"', '"transposed"'))
    with pytest.raises(ModelError, match=r"'transpose' has \['perm'\], not \['order'\]"):
        ParameterMap.from_json(text.replace('"perm"', '"order"'))


def test_unknown_name_suggests() -> None:
    weights = ParameterMap([Parameter("encoder.weight", "w", (1,))])
    with pytest.raises(ModelError, match=r"did you mean 'encoder\.weight'"):
        weights["encoder.wieght"]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["transpose", "flatten", "pack"]), max_size=6))
def test_any_sequence_of_steps_inverts_and_survives_json(kinds: list[str]) -> None:
    original = {"a": random(2, 6), "b": random(2, 6) + 1}
    weights = ParameterMap([Parameter(n, n, (2, 6)) for n in original])
    shapes = {"a": (2, 6), "b": (2, 6)}
    for kind in kinds:
        if kind == "pack" and len(shapes) == 2 and shapes["a"] == shapes["b"]:
            length, rest = shapes["a"]
            weights.pack({"a": length, "b": length}, axis=0, into="ab")
            shapes = {"ab": (2 * length, rest)}
            continue
        for value, (rows, columns) in list(shapes.items()):
            if kind == "transpose":
                weights.transform(value, Transpose((1, 0)))
                shapes[value] = (columns, rows)
            elif kind == "flatten":
                weights.transform(value, Reshape((rows, columns), (1, rows * columns)))
                shapes[value] = (1, rows * columns)
    weights = ParameterMap.from_json(weights.to_json())
    graph = weights.to_graph(original)
    assert {k: v.shape for k, v in graph.items()} == shapes
    for name, content in weights.from_graph(graph).items():
        np.testing.assert_array_equal(content, original[name])


def test_a_step_that_is_declared_wrongly_is_refused() -> None:
    def defined(**body: Any) -> None:
        type(
            "Wrong",
            (Step,),
            {"apply": lambda s, a: a, "invert": lambda s, a: a, "kind": "test-wrong", **body},
        )

    for body, message in (
        ({"kind": None}, "has no kind"),
        ({"kind": "transpose"}, "is called 'transpose', as .*Transpose is"),
        ({"apply": Step.apply}, "has no method 'apply'"),
        ({"__annotations__": {"step": int}}, "has a field 'step'"),
    ):
        with pytest.raises(ModelError, match=message):
            defined(**body)


def test_a_weight_goes_only_through_a_step_that_leads_back() -> None:
    @dataclass(frozen=True)
    class Shift(Step):
        kind = "test-shift"
        by: float
        back: float

        def apply(self, array: Any) -> Any:
            return array + np.float32(self.by)

        def invert(self, array: Any) -> Any:
            return array - np.float32(self.back)

    model = Model.from_text(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> '
        "{ y = Add(x, w) }"
    )
    model.parameters.add(Parameter("weight", "w", (2,)))
    weight = model.graph.initializers["w"]
    with pytest.raises(ModelError, match=r"'test-shift' on an array of float32.* does not lead back"):
        model.transform_parameter(weight, Shift(1.0, 2.0))
    with pytest.raises(ModelError, match=r"leads back to one of float64\[2\]"):
        model.transform_parameter(weight, Cast("float64", "float16"))
    model.transform_parameter(weight, Shift(1.0, 1.0))
    assert weight.const_value is not None
    np.testing.assert_array_equal(weight.const_value.numpy(), [2, 3])
    kept = model.parameters.from_graph({"w": weight.const_value.numpy()})
    np.testing.assert_array_equal(kept["weight"], [1, 2])
