"""Broken files and impossible outputs: one clear message and exit code 2, before any work is done."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from shell import fuseline, refused

from fuseline.engine.errors import FuselineError, ModelError, PipelineError
from fuseline.engine.inputs import load_npz
from fuseline.engine.memory.planning import parse_budget
from fuseline.engine.model import Model
from fuseline.engine.observers import load_expectations
from fuseline.engine.outputs import check_output_file, check_output_folder
from fuseline.engine.parameters import ParameterMap
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns.fuzz.parsers import KINDS, mutate, read
from fuseline.tools.campaigns.fuzz.workers import Pool
from fuseline.tools.quantizer.config import load_config
from fuseline.tools.quantizer.criteria import load_criteria

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> { a = Relu(x) y = Add(a, w) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    Model.from_text(TEXT).save(path)
    return path


@pytest.fixture
def pool() -> Pool:
    return Pool(read, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_broken_files_are_refused_or_read(pool: Pool, kind: str) -> None:
    chance = random.Random(11)
    try:
        for _ in range(40):
            verdict = pool.ask((kind, mutate(chance, kind)))
            assert verdict.status in ("ok", "refused"), verdict
    finally:
        pool.close()


def test_a_name_that_is_not_text_is_refused(tmp_path: Path, model: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(model.read_bytes().replace(b"Relu", b"Re\xffu"))
    done = fuseline("run", broken, "-o", tmp_path / "out.onnx", code=2)
    assert "is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_a_tensor_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    proto.graph.initializer[0].raw_data = b"\0" * 15
    path = tmp_path / "broken.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="the tensor 'w' cannot be read"):
        Model.load(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\x80\x04."])
def test_a_broken_archive_is_refused(tmp_path: Path, model: Path, content: bytes) -> None:
    path = tmp_path / "inputs.npz"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"is not an \.npz archive of arrays"):
        load_npz(path, Model.load(model))


def test_text_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"passes: \xff")
    with pytest.raises(PipelineError, match=r"pipeline file .* is not text: byte 8 is not UTF-8"):
        Pipeline.resolve(str(path))
    with pytest.raises(PipelineError, match=r"expectations file .* is not text"):
        load_expectations(path)


@pytest.mark.parametrize("text", ["repeat: 3", "repeat: {}\n    passes: {a: b}"])
def test_a_repeat_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(PipelineError):
        Pipeline.from_yaml(f"passes:\n  - {text}\n")


def test_expectations_of_a_pipeline_are_counts() -> None:
    with pytest.raises(PipelineError, match="'expect' must map operators to counts"):
        Pipeline.from_yaml("passes: [infer-shapes]\nexpect: [Relu]\n")


def test_a_broken_parameter_map_is_refused() -> None:
    with pytest.raises(ModelError, match="parameter map in the model's metadata cannot be read"):
        ParameterMap.from_json('[{"name": "w"}]')


def test_onnx_text_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="not a model in ONNX text"):
        Model.from_text("agraph (")
    with pytest.raises(ModelError, match="reads 'b', which nothing produces"):
        Model.from_text(TEXT.replace("Add(a, w)", "Add(b, w)"))


def test_an_output_is_checked_before_the_work(tmp_path: Path, model: Path) -> None:
    with pytest.raises(FuselineError, match="is a folder"):
        check_output_file(tmp_path)
    with pytest.raises(FuselineError, match="cannot be written"):
        check_output_file(model / "below" / "out.onnx")
    with pytest.raises(FuselineError, match="is a file"):
        check_output_folder(model)
    with pytest.raises(FuselineError, match="cannot be written"):
        check_output_folder(model / "below")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FuselineError, match="is a device or a pipe"):
        check_output_file(tmp_path / "pipe")
    assert check_output_file(tmp_path / "new" / "out.html").parent.is_dir()


@pytest.mark.parametrize(
    "words",
    [
        ["diff", "model.onnx", "model.onnx", "--html", "model.onnx"],
        ["view", "model.onnx", "-o", "model.onnx", "--no-browser"],
        ["profile", "model.onnx", "-o", "model.onnx"],
        ["profile", "model.onnx", "--svg", "p.json", "-o", "p.json"],
        ["run", "model.onnx", "-o", "out.onnx", "--junit", "model.onnx"],
        ["run", "model.onnx", "-o", "out.onnx", "--junit", "out.onnx"],
        ["run", "model.onnx", "-o", "mine.yaml", "--pipeline", "mine.yaml"],
        ["quantize", "model.onnx", "-o", "model.onnx"],
        ["quantize", "model.onnx", "-o", "q.onnx", "--report", "model.onnx"],
        ["quantize", "model.onnx", "-o", "q.html", "--report", "q.html"],
        ["bench", "model.onnx", "--svg", "./model.onnx"],
        ["bisect", "model.onnx", "-o", "."],
    ],
)
def test_an_output_never_replaces_what_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(model.parent)
    before = model.read_bytes()
    assert re.search("would replace a file|holds what the fault was found with", refused(*words))
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{model}", "-o", "{folder}"),
        ("run", "{model}", "-o", "{model}/out.onnx"),
        ("run", "{model}", "-o", "{folder}/out.onnx", "--dump", "{model}"),
        ("diff", "{model}", "{model}", "--html", "{folder}"),
        ("diff", "{model}", "{model}", "--html", "{model}/page.html"),
        ("bisect", "{model}", "-o", "{model}"),
        ("export", "{model}", "-o", "{folder}"),
        ("quantize", "{model}", "-o", "{folder}"),
        ("quantize", "{model}", "-o", "{folder}/q.onnx", "--report", "{folder}"),
    ],
)
def test_commands_refuse_what_cannot_be_written(tmp_path: Path, model: Path, words: tuple[str, ...]) -> None:
    done = fuseline(*(w.format(model=model, folder=tmp_path) for w in words), code=2)
    assert "is a folder" in done.stderr or "cannot be written" in done.stderr or "is a file" in done.stderr


def test_a_page_goes_into_a_new_folder(tmp_path: Path, model: Path) -> None:
    page = tmp_path / "pages" / "diff.html"
    fuseline("diff", model, model, "--html", page)
    assert page.read_text().startswith("<!")


def test_settings_of_a_quantization_that_are_not_text_are_refused(model: Path) -> None:
    for load in (load_config, load_criteria):
        model.write_bytes(b"mode: \xbd")
        with pytest.raises(FuselineError, match="is not text: byte 6 is not UTF-8"):
            load(model)


@pytest.mark.parametrize("text", ["nanGB", "1e400GB", "1e308GB", "inf", "nan", "-1MB", "GB"])
def test_a_budget_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(FuselineError, match="is no amount of memory"):
        parse_budget(text, 1000)


def test_slices_without_a_report_are_refused(tmp_path: Path, model: Path) -> None:
    done = fuseline("quantize", str(model), "-o", str(tmp_path / "q.onnx"), "--slices", str(model), code=2)
    assert "--slices names parts of a report" in done.stderr
