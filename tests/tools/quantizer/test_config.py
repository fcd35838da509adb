"""The configuration: typed, forgiving of nothing, from a file, a folder or the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fuseline.engine.errors import FuselineError
from fuseline.tools.quantizer.config import FILE, Config, load_config
from fuseline.tools.quantizer.plan import make_plan
from fuseline.tools.quantizer.schema import schema

GIVEN = {
    "mode": "static",
    "target": "avx2",
    "operators": ["MatMul", "Gather"],
    "weights": {"per-channel": False},
    "activations": {"observer": "entropy", "smooth": 0.5},
    "calibration": {"data": "c.npz", "samples": 12},
    "accuracy": {"metric": "accuracy", "criterion": "absolute", "tolerable-loss": 0.02},
    "budget": {"time": 60.0, "trials": 3},
}


def test_plain_data_round_trips() -> None:
    config = Config.from_dict(GIVEN)
    assert config.to_dict() == GIVEN
    assert config.weights.per_channel is False
    assert config.accuracy is not None
    assert config.accuracy.tolerable_loss == 0.02


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mod": "static"}, "has no option 'mod'\n  hint: did you mean 'mode'"),
        ({"mode": "statik"}, "option 'mode' of 'the configuration' must be one of"),
        ({"activations": {"obsever": "mse"}}, "did you mean 'observer'"),
        ({"activations": {"observer": "minmax"}}, "must be one of 'min-max'"),
        ({"weights": "int8"}, "'weights' must be a mapping of settings"),
        ({"budget": {"trials": 2.5}}, "must be a whole number"),
        ({"budget": {"trials": 0}}, "'trials' must be at least 1, not 0"),
        ({"budget": {"time": -1}}, "'time' must be at least 0"),
        ({"weights": {"smallest": -5}}, "'smallest' must be at least 0"),
        ({"activations": {"percentile": 250}}, "'percentile' must be above 0 and at most 100, not 250"),
        ({"activations": {"percentile": 0}}, "'percentile' must be above 0"),
        ({"activations": {"smooth": 1.5}}, "'smooth' must be at least 0 and at most 1"),
        ({"calibration": {"samples": 0}}, "'samples' must be at least 1"),
        ({"calibration": {"batch-size": 0}}, "'batch-size' must be at least 1"),
        ({"accuracy": {"tolerable-loss": -0.1}}, "'tolerable-loss' must be at least 0"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(FuselineError) as caught:
        Config.from_dict(given)
    assert message in str(caught.value)


def test_from_a_file_a_folder_and_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_text(yaml.safe_dump(GIVEN))
    assert load_config(tmp_path / FILE) == load_config(tmp_path) == Config.from_dict(GIVEN)
    # A Hub repository as its client keeps it on disk.
    folder = tmp_path / "hub/models--someone--small"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc123")
    (folder / "snapshots/abc123").mkdir(parents=True)
    (folder / "snapshots/abc123" / FILE).write_text(yaml.safe_dump(GIVEN))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_OFFLINE", True)
    assert load_config("someone/small") == Config.from_dict(GIVEN)
    with pytest.raises(FuselineError, match="the Hub repository 'someone/other' gives no"):
        load_config("someone/other")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FuselineError, match="there is no configuration"):
        load_config(tmp_path / "absent.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(FuselineError, match="holds no mapping"):
        load_config(tmp_path / "list.yaml")


def test_the_schema_knows_every_setting() -> None:
    made = schema()
    assert made["additionalProperties"] is False
    assert set(made["properties"]) >= set(GIVEN)
    assert made["properties"]["activations"]["properties"]["observer"]["enum"][0] == "min-max"
    assert made["properties"]["mode"]["default"] == "dynamic"


def test_an_operator_that_nobody_quantizes_is_named() -> None:
    with pytest.raises(FuselineError, match="no way to quantize an operator 'MatMull'"):
        make_plan(Config(operators=("MatMull",)))


@pytest.mark.parametrize("mode", ["weight-only", "float16", "bfloat16"])
def test_a_format_that_a_mode_does_not_have_is_refused(mode: str) -> None:
    make_plan(Config(format="fused"), mode)
    with pytest.raises(FuselineError, match=f"mode '{mode}' has one form, which is not 'standard'"):
        make_plan(Config(format="standard"), mode)
