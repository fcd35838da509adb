"""Every kind of source, and what the user reads when one is no good."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuseline.engine.model import Model
from fuseline.exporters import ExportError, Family, export, register_family
from fuseline.exporters.families import family_of
from fuseline.exporters.sources import resolve
from fuseline.exporters.verify import CheckReport, Runner
from fuseline.tools.campaigns import zoo


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(5, 8), nn.Dropout(0.1), nn.Linear(8, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(self.drop(torch.relu(self.first(features)))).squeeze(-1)  # type: ignore[no-any-return]


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target)


EXAMPLE = {"features": torch.randn(4, 5), "target": torch.randn(4)}


def test_plain_module_with_a_loss_of_the_user() -> None:
    model = export(Regressor(), train=True, example_inputs=EXAMPLE, loss=squared_error)
    assert [o.name for o in model.graph.outputs] == ["loss", "output"]
    assert [p.name for p in model.parameters] == [
        "first.weight",
        "first.bias",
        "second.weight",
        "second.bias",
    ]
    assert model.facts.interface.dynamic_axes == {"features": {"0": "batch"}, "target": {"0": "batch"}}
    assert [n.metadata_props["fuseline.module"] for n in model.nodes() if n.op_type == "Gemm"] == [
        "first",
        "second",
    ]


def test_plain_module_for_inference() -> None:
    module = Regressor()
    model = export(module, example_inputs=(torch.randn(2, 5),))
    features = torch.randn(7, 5)
    module.eval()
    actual = Runner(model)({"features": features.numpy()})["output"]
    np.testing.assert_allclose(actual, module(features).detach().numpy(), atol=1e-6)


def test_encoder_decoder_for_inference_reads_what_was_said_so_far() -> None:
    model = export(zoo.build("t5"))
    assert [i.name for i in model.graph.inputs] == ["input_ids", "attention_mask", "decoder_input_ids"]
    assert [o.name for o in model.graph.outputs] == ["logits"]
    assert CheckReport.from_json(model.facts.origin.check).ok


def factory() -> tuple[nn.Module, dict[str, Tensor], Any]:
    return Regressor(), EXAMPLE, squared_error


def test_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "factories_of_a_user", sys.modules[__name__])
    found = resolve("factories_of_a_user:factory")
    assert isinstance(found.module, Regressor)
    assert found.loss is squared_error


def test_folder_and_config(tmp_path: Path) -> None:
    module = zoo.build("distilbert")
    module.save_pretrained(tmp_path / "model")
    loaded = resolve(tmp_path / "model")
    assert type(loaded.module).__name__ == "DistilBertForSequenceClassification"
    for name, value in module.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], value)
    config = tmp_path / "model" / "config.json"
    one, two, other = (resolve(str(config), seed=seed) for seed in (1, 1, 2))
    assert one.notes == ["weights are random (seed 1)"]
    weights = [next(s.module.parameters()) for s in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_onnx_file(bert: tuple[Any, Model], tmp_path: Path) -> None:
    bert[1].save(tmp_path / "model.onnx")
    assert export(tmp_path / "model.onnx", train=True).facts.training.loss == "loss"


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere", {}, "'nowhere' is nothing that can be exported"),
        ("no_such_module:make", {}, "there is no factory 'no_such_module:make'"),
        (Regressor(), {}, "Regressor is a plain torch module: its inputs are unknown"),
        (Regressor(), {"train": True, "example_inputs": EXAMPLE}, "Regressor takes no input called 'target'"),
        (Regressor(), {"opset": 7}, "opset 7 is not supported"),
        (zoo.config("bert"), {}, "the config names no architecture"),
        (zoo.config("bert"), {"task": "poetry"}, "unknown task 'poetry'"),
    ],
)
def test_readable_refusals(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError) as caught:
        export(source, **options)
    assert caught.value.message.startswith(message)


class Moody(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features if features.sum() > 0 else -features


def test_what_torch_cannot_trace_is_one_readable_message() -> None:
    with pytest.raises(ExportError) as caught:
        export(Moody(), example_inputs=(torch.randn(2, 5),))
    error = caught.value
    assert "Moody cannot be exported: its Python code branches on the content of a tensor" in error.message
    assert "test_sources.py:" in error.message
    assert "\n" not in error.message
    assert error.hint is not None
    log = Path(error.hint.rsplit("full text: ", 1)[1].rstrip(")"))
    assert "Traceback" in log.read_text()
    log.unlink()


def test_a_mismatch_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drifting(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features * 2 if torch.compiler.is_exporting() else features

    with pytest.raises(ExportError, match="was exported, but differs from torch: output by"):
        export(Drifting(), example_inputs=(torch.randn(2, 5),))


def test_family_of_a_user() -> None:
    @register_family
    class Mine(Family):
        model_types = ("model-of-a-user",)

    class Config:
        model_type = "model-of-a-user"

    assert isinstance(family_of(Config()), Mine)


def test_two_families_for_one_model_type() -> None:
    @register_family
    class One(Family):
        model_types = ("bert-of-a-user",)

    class Two(Family):
        model_types = ("bert-of-a-user",)

    with pytest.raises(ExportError, match="two families answer for model type 'bert-of-a-user'"):
        register_family(Two)
