"""The compile cache: a second start is immediate, another option another key, files are whole or absent."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from trainer_harness import arguments, make, rows

from fuseline.engine.model import Model
from fuseline.exporters import zoo
from fuseline.tools.trainer import CompileCache, Compiler, Settings

GRAPH = '<ir_version: 10, opset_import: ["" : 18]> agraph (float[N] x) => (float[N] y) { y = Relu(x) }'


def test_second_start_compiles_nothing(folder: Path) -> None:
    for start in range(2):
        model = zoo.build("bert")
        trainer = make(model, arguments(folder, max_steps=2), train_dataset=rows(model, 8), cache_dir=folder)
        trainer.train()
        expected = {"exports": 1, "pipelines": 1} if start == 0 else {"cache hits": 1}
        assert dict(trainer.compiler.counts) == expected


def test_what_matters_changes_the_key() -> None:
    def key(name: str = "bert", pipeline: str = "training-stock", **changes: Any) -> str:
        return Compiler(Settings(pipeline=pipeline))._key(zoo.build(name, **changes))

    base = key()
    assert key() == base
    assert key(seed=1) == base  # other weights, the same graph
    assert key(dropout=0.1) != base
    assert key(hidden_size=32) != base
    assert key(attention="sdpa") != base
    assert key(pipeline="training") != base
    frozen = zoo.build("bert")
    frozen.classifier.weight.requires_grad_(False)
    compiler = Compiler(Settings(pipeline="training-stock"))
    assert compiler._key(frozen) != base
    scaled = zoo.build("bert")
    scaled.bert.encoder.layer[0].attention.self.scaling = 0.1
    assert compiler._key(scaled) != base


def test_broken_entries_are_made_again(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.store("key", [Model.from_text(GRAPH)])
    assert cache.load("key", 1) is not None
    (tmp_path / "key-0.onnx").write_bytes(b"cut short")
    assert cache.load("key", 1) is None
    assert cache.load("other", 1) is None


def _compile_once(folder: Path, made: Any) -> None:
    cache = CompileCache(folder)
    with cache.locked("key"):
        if cache.load("key", 1) is None:
            with made.get_lock():
                made.value += 1
            cache.store("key", [Model.from_text(GRAPH)])


def test_many_processes_compile_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    made = context.Value("i", 0)
    workers = [context.Process(target=_compile_once, args=(tmp_path, made)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [w.exitcode for w in workers] == [0] * 6
    assert made.value == 1


def test_off_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSELINE_CACHE", str(tmp_path))
    assert CompileCache.at("off").folder is None
    assert CompileCache.at(None).folder == tmp_path / "graphs"
