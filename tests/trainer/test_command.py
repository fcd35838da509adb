"""`fuseline train`: messages for what is wrong, and a whole run on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fuseline.engine.errors import FuselineError
from fuseline.exporters import zoo
from fuseline.tools.main import app
from fuseline.tools.trainer.text_data import balanced, read_texts, split

TABLE = "text,label\n" + "".join(f"word{i % 7} word{i % 3},{'good' if i % 2 else 'bad'}\n" for i in range(40))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(TABLE)
    return path


def test_reading_splitting_and_balancing(table: Path) -> None:
    texts = read_texts(table)
    assert texts.labels == ["bad", "good"]
    training, held_out = split(texts, 0.25, seed=0)
    assert (len(training), len(held_out)) == (30, 10)
    assert sum(balanced(texts, 10, seed=0).targets) == 5


def test_wrong_column_is_named_with_a_hint(table: Path) -> None:
    with pytest.raises(FuselineError, match=r"no column 'lable'\n  hint: did you mean 'label'\?"):
        read_texts(table, label="lable")


def test_model_folder_without_config(table: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(tmp_path), str(table), "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, FuselineError)
    assert "holds no config.json" in str(result.exception)


def test_whole_run(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    _tiny_model(folder)
    out = tmp_path / "out"
    options = ["--max-steps", "4", "--batch-size", "4", "--held-out", "0.2", "--json", "--fallback", "error"]
    result = CliRunner().invoke(app, ["train", str(folder), str(table), "-o", str(out), *options])
    assert result.exception is None, result.output
    summary = json.loads(result.output[result.output.index("{\n") :])
    assert summary["ran_on"] == "ONNX Runtime"
    assert summary["steps"] == 4
    assert (out / "model.safetensors").is_file()
    assert (out / "model.onnx").is_file()


def _tiny_model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1, **{f"word{i}": i + 5 for i in range(7)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    zoo.build("bert").save_pretrained(folder)
