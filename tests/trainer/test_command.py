"""`fuseline train`: messages for what is wrong, and a whole run on a tiny model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import onnxruntime
import pytest
import transformers
from typer.testing import CliRunner

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns import zoo
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


def test_every_format_reads_the_same(table: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(TABLE.splitlines()))
    (tmp_path / "data.json").write_text(json.dumps(rows))
    (tmp_path / "data.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    (tmp_path / "data.tsv").write_text(TABLE.replace(",", "\t"))
    for suffix in ("json", "jsonl", "tsv"):
        assert read_texts(tmp_path / f"data.{suffix}") == read_texts(table)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text"', "line 2 is no JSON"),
        ("a.jsonl", '{"text": "a", "label": 1}\n[1]', "line 2 is no object but list"),
        ("a.json", '{"text": "a"}', "holds no list of objects"),
        ("a.json", "[1]", "entry 1 is no object but int"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}', "row 2 has no 'label'"),
        ("a.csv", "text,label\n", "holds no rows"),
        ("a.txt", "text", r"is neither \.csv, \.tsv, \.json nor \.jsonl"),
    ],
)
def test_bad_tables_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FuselineError, match=message):
        read_texts(tmp_path / name)


def test_wrong_column_is_named_with_a_hint(table: Path) -> None:
    with pytest.raises(FuselineError, match=r"no column 'lable'\n  hint: did you mean 'label'\?"):
        read_texts(table, label="lable")


def test_model_folder_without_config(table: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(tmp_path), str(table), "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, FuselineError)
    assert "holds no config.json" in str(result.exception)


@pytest.mark.native
def test_whole_run(table: Path, tmp_path: Path) -> None:
    """Four steps from the shell, then on from their checkpoint; the model loads, and runs as ONNX."""
    folder, out = tmp_path / "model", tmp_path / "out"
    _tiny_model(folder)
    fixed = [str(folder), str(table), "-o", str(out), "--batch-size", "4", "--held-out", "0.2"]
    fixed += ["--fallback", "error"]
    result = CliRunner().invoke(app, ["train", *fixed, "--max-steps", "4", "--json"])
    assert result.exception is None, result.output
    summary = json.loads(result.output[result.output.index("{\n") :])
    assert summary["ran_on"] == "ONNX Runtime"
    assert summary["steps"] == 4
    assert summary["runs"]["loss"] == 4
    assert 0 <= summary["eval_accuracy"] <= 1
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    assert loaded.config.id2label == {0: "bad", 1: "good"}
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    assert [o.name for o in session.get_outputs()] == ["logits"]

    result = CliRunner().invoke(app, ["train", *fixed, "--max-steps", "6", "--resume"])
    assert result.exception is None, result.output
    table_rows = {
        cells[1].strip(): cells[2].strip()
        for line in result.output.splitlines()
        if len(cells := line.replace("┃", "│").split("│")) == 4
    }
    assert table_rows["steps"] == "6"
    assert table_rows["ran on"] == "ONNX Runtime"
    assert table_rows["runs"].startswith("loss 2")
    assert float(table_rows["eval accuracy"]) <= 1


def test_causal_language_model(table: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "model", tmp_path / "out"
    _tiny_model(folder, "gpt2")
    options = ["--task", "causal-lm", "--max-steps", "3", "--batch-size", "4", "--json", "--whole-step"]
    result = CliRunner().invoke(
        app, ["train", str(folder), str(table), "-o", str(out), "--fallback", "error", *options]
    )
    assert result.exception is None, result.output
    summary = json.loads(result.output[result.output.index("{\n") :])
    assert summary["runs"]["native"] == 3
    assert summary["eval_loss"] > 0


def _tiny_model(folder: Path, name: str = "bert") -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, **{f"word{i}": i + 5 for i in range(7)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)
    zoo.build(name).save_pretrained(folder)
