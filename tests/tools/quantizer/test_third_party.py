"""The campaign over third-party models: what it calls good, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuseline.engine.model import Model
from fuseline.tools.campaigns import third_party_quantized
from fuseline.tools.campaigns.third_party_quantized import attempt
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.data import made_up
from fuseline.tools.quantizer.left import UNKNOWN
from tests.tools.quantizer import small_model


def test_a_product_left_without_a_reason_is_a_failure(tmp_path: Path, monkeypatch: Any) -> None:
    small_model.model(fragile=False).save(tmp_path / "m.onnx")
    data = made_up(Model.load(tmp_path / "m.onnx"), count=1)
    good, text = attempt(tmp_path / "m.onnx", {"mode": "dynamic", "weights": {"smallest": 0}}, data)
    assert good
    assert "0 of them without a reason" in text

    def silent(*given: Any, **named: Any) -> Any:
        outcome = quantize(*given, **named)
        return replace(outcome, left=replace(outcome.left, products={"head": UNKNOWN}))

    monkeypatch.setattr(third_party_quantized, "quantize", silent)
    good, text = attempt(tmp_path / "m.onnx", {"mode": "dynamic"}, data)
    assert not good
    assert "1 left in float, 1 of them without a reason" in text


@pytest.mark.parametrize("config", [{"mode": "dynamic", "target": "tensorrt"}])
def test_a_refusal_in_words_is_none(tmp_path: Path, config: dict[str, Any]) -> None:
    small_model.model(fragile=False).save(tmp_path / "m.onnx")
    data = made_up(Model.load(tmp_path / "m.onnx"), count=1)
    good, text = attempt(tmp_path / "m.onnx", config, data)
    assert good
    assert text.startswith("refused: target 'tensorrt' has no dynamic quantization")
