"""Integer graphs agree with their fake-quantized form, and every product left in float says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
