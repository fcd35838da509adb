"""Integer graphs agree with their fake-quantized form, and every product left in float says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fuseline.engine.model import Model
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.metrics import predictor, signal_to_noise
from tests.tools.quantizer import small_model


def outputs(model: Model) -> np.ndarray:
    predict = predictor(model)
    return np.concatenate([predict(b)["logits"] for b in small_model.batches()])


@pytest.mark.parametrize("mode", ["dynamic", "static"])
@pytest.mark.parametrize("settings", [{}, {"per-channel": False}, {"type": "uint8", "symmetric": False}])
def test_all_formats_of_one_quantization_agree(mode: str, settings: dict[str, object]) -> None:
    given = {
        "mode": mode,
        "weights": {"smallest": 0, **settings},
        "pipeline": "skip",
        "target": "avx512_vnni",
    }
    model, data = small_model.model(fragile=False), small_model.batches()
    made = {
        form: outputs(quantize(model, config={**given, "format": form}, calibration=data).model)
        for form in ("fused", "standard", "qdq")
    }
    plain = outputs(model)
    assert signal_to_noise(plain, made["fused"]) > 25
    for form in ("standard", "qdq"):
        # Far below the noise of quantization itself; a rounding tie may fall to either side.
        assert signal_to_noise(made["fused"], made[form]) > signal_to_noise(plain, made["fused"]) + 10, form


def test_every_product_left_in_float_says_why() -> None:
    names = [n.name for n in small_model.model().graph if n.op_type == "MatMul"]
    outcome = quantize(
        small_model.model(), config={"pipeline": "skip", "weights": {"smallest": 200}, "exclude": [names[0]]}
    )
    assert outcome.left.products == {
        names[0]: f"'{names[0]}' is excluded",
        names[-1]: "its weight has 128 elements, fewer than 200",
    }
    assert outcome.left.others == {"Mul": 3, "Relu": 3}


def test_a_result_is_written_and_small(tmp_path: Path) -> None:
    model = small_model.model(fragile=False)
    model.save(tmp_path / "m.onnx")
    outcome = quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", {"weights": {"smallest": 0}})
    assert outcome.size_ratio < 0.35
    assert outputs(Model.load(tmp_path / "q.onnx")).shape == (128, 4)


def single(operator: str, x: tuple[int, ...], **constants: np.ndarray) -> Model:
    """One node on an input of a free batch and constants."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *constants], ["y"], name="product")],
        "single",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *x])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return Model.from_proto(made)


def noise_of(model: Model, batch: np.ndarray, **given: object) -> float:
    """Signal to noise of the only output, in decibels."""
    outcome = quantize(model, config={"target": "avx512_vnni", **given}, calibration=[{"x": batch}])
    assert not outcome.left.products
    was, now = (predictor(m)({"x": batch})["y"] for m in (model, outcome.model))
    return signal_to_noise(was, now)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "dynamic"},
        {"mode": "dynamic", "format": "qdq"},
        {"mode": "static"},
        {"mode": "weight-only"},
        {"mode": "weight-only", "weights": {"method": "gptq"}},
        {"mode": "weight-only", "weights": {"method": "awq", "bits": 8}},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("number", "reason"), [(np.nan, "NaN"), (np.inf, "NaN or infinities"), (1e-36, "too little for a scale")]
)
def test_weights_that_no_grid_holds_stay_in_float(
    given: dict[str, object], number: float, reason: str
) -> None:
    weight = normal(64, 64) if not np.isfinite(number) else np.zeros((64, 64), np.float32)
    weight[3, 5] = number
    model, batch = single("MatMul", (64,), w=weight), normal(4, 64)
    outcome = quantize(model, config={"target": "avx512_vnni", **given}, calibration=[{"x": batch}])
    assert reason in outcome.left.products["product"]
    was, now = (predictor(m)({"x": batch})["y"] for m in (model, outcome.model))
    np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("shape", [(4096,), (2, 64, 64), (1, 64, 64)], ids=str)
@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_weights_that_are_no_matrices_run_as_pairs(mode: str, shape: tuple[int, ...]) -> None:
    rows = shape[-2] if len(shape) > 1 else shape[0]
    model = single("MatMul", (2, 3, rows), w=normal(*shape))
    assert noise_of(model, normal(5, 2, 3, rows), mode=mode, format="qdq") > 25


def test_a_bias_far_larger_than_its_weights_keeps_its_value() -> None:
    weight = normal(32, 16, 3, 3)
    weight[::2] *= 1e-12
    model = single("Conv", (16, 6, 6), w=weight, b=normal(32))
    assert noise_of(model, normal(2, 16, 6, 6), mode="static") > 25


def test_what_gptq_knows_of_an_activation_is_found_behind_rewritten_products() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "v", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Gemm", ["r", "w"], ["y"]),
        ],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 48])],
        [
            numpy_helper.from_array(a, n)
            for n, a in (("v", normal(64, 64)), ("b", normal(64)), ("w", normal(64, 48)))
        ],
    )
    model = Model.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )
    assert noise_of(model, normal(200, 64), mode="weight-only", weights={"method": "gptq"}) > 17


@pytest.mark.parametrize("method", ["rtn", "gptq", "awq"])
@pytest.mark.parametrize(("weights", "activations"), [(1e20, 1.0), (1.0, 1e20)])
def test_numbers_whose_squares_overflow_are_rounded_as_others(
    method: str, weights: float, activations: float
) -> None:
    model = single("MatMul", (64,), w=normal(64, 64) * np.float32(weights))
    batch = normal(200, 64) * np.float32(activations)
    assert noise_of(model, batch, mode="weight-only", weights={"method": method}) > 17


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_convolutions_take_activations_of_both_signs(activations: str) -> None:
    model = single("Conv", (16, 6, 6), w=normal(32, 16, 3, 3), b=normal(32))
    settings = {"type": activations, "symmetric": activations == "int8"}
    assert noise_of(model, normal(2, 16, 6, 6), mode="static", activations=settings) > 25


@pytest.mark.parametrize(
    "given",
    [{"mode": "weight-only", "weights": {"bits": 8, "smallest": 0}}, {"mode": "float16"}],
    ids=str,
)
def test_products_that_were_converted_are_not_left(given: dict[str, object]) -> None:
    outcome = quantize(small_model.model(fragile=False), config=given)
    assert not outcome.left.products
    assert outcome.left.quantized >= 4


BRANCH = """<ir_version: 9, opset_import: ["" : 18]>
branchy (float[4, 64] x, bool flag) => (float[4, 64] y)
<float[64, 64] w>
{
    y = If (flag) <
        then_branch = taken () => (float[4, 64] a) { positive = Relu (x) a = MatMul (positive, w) },
        else_branch = other () => (float[4, 64] b) { b = Identity (x) }
    >
}"""


@pytest.mark.parametrize("form", ["fused", "qdq"])
def test_values_of_branches_say_that_calibration_does_not_look_there(form: str) -> None:
    proto = onnx.parser.parse_model(BRANCH)
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    data = [{"x": np.ones((4, 64), np.float32), "flag": np.array(True)}]
    settings = {"mode": "static", "format": form, "pipeline": "skip"}
    left = quantize(Model.from_proto(proto), config=settings, calibration=data).left
    (reason,) = left.products.values()
    assert reason.endswith("inside a branch or a loop, where calibration does not look")
