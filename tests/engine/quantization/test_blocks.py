"""Weights in blocks: packed as the runtime reads them, rounded as well as can be."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline.engine import runtime
from fuseline.engine.calibration.moments import load_moments, save_moments, second_moments
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.quantization.blocks import quantize_blocks
from fuseline.engine.quantization.gptq import gptq, output_error
from fuseline.passes.quantization.quantize_weights import QuantizeWeights
from fuseline.passes.quantization.scale_salient import ScaleSalient
from tests.tools.quantizer import small_model


def inputs(rows: int = 4000, width: int = 64) -> np.ndarray:
    """Correlated, with a few channels much larger than the others, as in language models."""
    chance = np.random.default_rng(0)
    mixed = chance.normal(size=(rows, width // 4)) @ chance.normal(size=(width // 4, width))
    large = np.where(np.arange(width) % 17 == 0, 12.0, 1.0)
    return (mixed + 0.2 * chance.normal(size=(rows, width))) * large


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("rows", [64, 70])
def test_the_runtime_computes_what_the_blocks_stand_for(symmetric: bool, rows: int) -> None:
    weight = np.random.default_rng(1).normal(size=(rows, 24)).astype(np.float32)
    blocks = quantize_blocks(weight, bits=4, block=32, symmetric=symmetric)
    zero = "" if symmetric else f", uint8[{blocks.packed_zero().size}] z"
    use = "" if symmetric else ", z"
    packed = blocks.packed()
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"g (float[N,{rows}] x, uint8[{','.join(map(str, packed.shape))}] w, float[{blocks.scale.size}] s"
        f"{zero}) => (float[N,24] y) "
        f"{{ y = com.microsoft.MatMulNBits<K={rows},N=24,bits=4,block_size=32>(x, w, s{use}) }}"
    )
    x = np.random.default_rng(2).normal(size=(5, rows)).astype(np.float32)
    fed = {"x": x, "w": packed, "s": blocks.scale.reshape(-1), "z": blocks.packed_zero()}
    there = runtime.run(runtime.session(model), fed)["y"]
    np.testing.assert_allclose(there, x @ blocks.restored(), rtol=1e-4, atol=1e-4)


def test_a_searched_range_is_never_worse_than_the_whole() -> None:
    weight = np.random.default_rng(3).normal(size=(128, 40)).astype(np.float32)
    found = quantize_blocks(weight, bits=4, block=32).restored()
    split = weight.T.reshape(40, 4, 32)
    low, high = np.minimum(split.min(-1), 0), np.maximum(split.max(-1), 0)
    scale = (high - low) / 15
    zero = np.rint(-low / scale)
    plain = (np.clip(np.rint(split / scale[..., None]) + zero[..., None], 0, 15) - zero[..., None]) * scale[
        ..., None
    ]
    assert ((found - weight) ** 2).sum() <= ((plain.reshape(40, -1).T - weight) ** 2).sum()


@pytest.mark.parametrize("block", [32, 64])
def test_gptq_makes_smaller_errors_in_the_output(block: int) -> None:
    x = inputs()
    weight = np.random.default_rng(4).normal(size=(64, 48)).astype(np.float32)
    moments = x.T @ x
    nearest = quantize_blocks(weight, bits=4, block=block).restored()
    better = gptq(weight, moments, bits=4, block=block).restored()
    fresh = inputs()[::2]
    errors = [((fresh @ w - fresh @ weight) ** 2).mean() for w in (nearest, better)]
    assert errors[1] < 0.6 * errors[0]
    assert output_error(weight, better, moments) == pytest.approx(
        ((x @ (better - weight)) ** 2).sum(), rel=1e-4
    )


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    x = inputs()
    x[:, 5] = 0
    weight = np.random.default_rng(5).normal(size=(64, 8)).astype(np.float32)
    assert np.isfinite(gptq(weight, x.T @ x, bits=4, block=32).restored()).all()


def test_moments_of_a_model_are_those_of_its_values(tmp_path: object) -> None:
    model = small_model.model(fragile=False)
    data = small_model.batches()
    found = second_moments(model, lambda: data, {"s0": 32, "s1": 32}, at_once=1)
    x = np.concatenate([b["x"] for b in data])
    np.testing.assert_allclose(found["s0"].products, x.T @ x, rtol=1e-3, atol=1e-3)
    path = f"{tmp_path}/m.npz"
    save_moments(path, found)
    read = load_moments(path)
    np.testing.assert_array_equal(read["s1"].products, found["s1"].products)
    assert read["s1"].rows == len(x)


def test_scaling_salient_channels_changes_no_result_and_rounds_better(tmp_path: object) -> None:
    chance = np.random.default_rng(6)
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,64] x) => (float[N,48] y) '
        "{ n = LayerNormalization(x, gain) y = MatMul(n, w) }".replace(
            "(float[N,64] x)", "(float[N,64] x, float[64] gain, float[64,48] w)"
        )
    )
    import onnx_ir as ir

    gain = np.where(np.arange(64) % 17 == 0, 20.0, 1.0).astype(np.float32)
    for value, array in zip(
        list(model.graph.inputs)[1:], (gain, chance.normal(size=(64, 48)).astype(np.float32)), strict=True
    ):
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=value.name)
        model.graph.register_initializer(value)
    data = [{"x": chance.normal(size=(64, 64)).astype(np.float32)} for _ in range(4)]
    path = f"{tmp_path}/m.npz"
    save_moments(path, second_moments(model, lambda: data, {"n": 64}))
    scaled = Pipeline.of(ScaleSalient(moments=path)).run(model).model
    plain, same = (runtime.run(runtime.session(m), data[0])["y"] for m in (model, scaled))
    np.testing.assert_allclose(same, plain, rtol=1e-3, atol=1e-3)
    rounded = Pipeline.of(QuantizeWeights(smallest=0))
    errors = [
        float(((runtime.run(runtime.session(rounded.run(m).model), data[0])["y"] - plain) ** 2).mean())
        for m in (model, scaled)
    ]
    assert errors[1] < 0.7 * errors[0]
