"""The compile cache: a second start is immediate, another option another key, files are whole or absent."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from trainer_harness import arguments, assert_same, both, make, rows

from fuseline.engine.model import Model
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import CompileCache, Compiler, Settings
from fuseline.tools.trainer.cache import digest
from fuseline.tools.trainer.describe import describe
from fuseline.tools.trainer.form import Form

FORM = Form("text-classification")
GRAPH = '<ir_version: 10, opset_import: ["" : 18]> agraph (float[N] x) => (float[N] y) { y = Relu(x) }'


def test_second_start_compiles_nothing(folder: Path) -> None:
    for start in range(2):
        model = zoo.build("bert")
        trainer = make(model, arguments(folder, max_steps=2), train_dataset=rows(model, 8), cache_dir=folder)
        trainer.train()
        expected = {"exports": 1, "pipelines": 1} if start == 0 else {"cache hits": 1}
        assert dict(trainer.compiler.counts) == expected


@pytest.mark.native  # without the library 'training' is 'training-stock'
def test_what_matters_changes_the_key() -> None:
    def key(name: str = "bert", pipeline: str = "training-stock", **changes: Any) -> str:
        return Compiler(Settings(pipeline=pipeline)).key(zoo.build(name, **changes), FORM)

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
    assert compiler.key(frozen, FORM) != base
    scaled = zoo.build("bert")
    scaled.bert.encoder.layer[0].attention.self.scaling = 0.1
    assert compiler.key(scaled, FORM) != base


class ScaledForSequenceClassification(transformers.BertForSequenceClassification):
    """A classifier with values of every kind that a trace may bake in."""

    def __init__(
        self, *, seed: int = 0, buffer: float = 1.0, loose: float = 1.0, listed: float = 1.0
    ) -> None:
        torch.manual_seed(seed)
        super().__init__(zoo.config("bert", num_hidden_layers=1))
        self.register_buffer("buffer", torch.full((64,), buffer))
        self.loose = torch.full((3,), loose)
        self.listed = [listed]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Any:
        pooled = self.bert(input_ids, attention_mask, token_type_ids).pooler_output
        logits = self.classifier(pooled * (self.buffer * 2 + 1)) * self.loose * self.listed[0]
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return transformers.modeling_outputs.SequenceClassifierOutput(loss=loss, logits=logits)


def test_whatever_is_baked_in_changes_the_key() -> None:
    compiler = Compiler(Settings(pipeline="training-stock"))

    def key(**values: float) -> str:
        return compiler.key(ScaledForSequenceClassification(**values), FORM)

    assert key() == key()
    assert len({key(), key(buffer=3.0), key(loose=2.0), key(listed=0.5)}) == 4


@pytest.mark.parametrize(
    "freeze, whole_step", [pytest.param(False, False, marks=pytest.mark.slow), (True, True)]
)
def test_nothing_stale_is_found(freeze: bool, whole_step: bool, folder: Path) -> None:
    """Models that differ only in values, one after the other over one cache: each trains as in torch."""
    hits = []
    for values in ({}, {"buffer": 3.0}, {"seed": 1}):
        model = ScaledForSequenceClassification(**values)
        if freeze:
            model.bert.requires_grad_(False)
        args = arguments(folder, max_steps=3, warmup_steps=0)
        ours = {"cache_dir": folder / "cache", "whole_step": whole_step}
        stock, mine = both(model, args, rows(model, 12), ours=ours)
        assert_same(stock, mine, relative=1e-5, absolute=1e-5)
        hits.append(mine.trainer.compiler.counts["cache hits"])
    # Weights are fed, frozen or not; everything else is part of the graph.
    assert hits == [0, 0, 1]


def test_values_that_change_between_runs_are_seen(folder: Path) -> None:
    model = ScaledForSequenceClassification()
    data = rows(model, 8)
    trainer = make(model, arguments(folder), eval_dataset=data)
    before = trainer.evaluate()["eval_loss"]
    model.buffer.zero_()
    model.listed = [5.0]
    found = trainer.evaluate()["eval_loss"]
    with trainer.bridge.detached(), torch.no_grad():
        expected = float(model.eval()(**data.batch).loss)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found != pytest.approx(before, rel=1e-5)


def test_code_that_the_model_uses_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own file, that of a layer in it, and a function that this one calls from a third file."""
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "own_function": "def twice(x):\n    return 2 * x\n",
        "own_layer": "import torch, own_function\nclass Layer(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(2, 2)\n"
        "    def forward(self, x):\n        return 2 * own_function.twice(super().forward(x))\n",
        "own_model": "import torch\nfrom own_layer import Layer\nclass Model(torch.nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(Layer())\n"
        "    def forward(self, x):\n        return 2 + self[0](x)\n",
    }

    def described() -> str:
        for name in texts:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return digest(describe(importlib.import_module("own_model").Model()))

    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    seen = {described()}
    assert seen == {described()}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text.replace("2 ", "3 "))
        changed = described()
        assert changed not in seen
        seen.add(changed)
        (tmp_path / f"{name}.py").write_text(f"# another line\n{text.replace('2 ', '3 ')}")
        assert described() == changed


def test_broken_entries_are_made_again(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.store("key", [Model.from_text(GRAPH)])
    assert cache.load("key", 1) is not None
    file = tmp_path / "key-0.graph"
    whole = file.read_bytes()
    for place in (0, 40, len(whole) // 2, len(whole) - 1):
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        file.write_bytes(flipped)
        assert cache.load("key", 1) is None
    for broken in (b"", b"cut short", whole[:-1], whole + b"x"):
        file.write_bytes(broken)
        assert cache.load("key", 1) is None
    file.unlink()
    file.mkdir()
    assert cache.load("key", 1) is None
    assert cache.load("other", 1) is None


def test_a_folder_that_cannot_be_used_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.write_text("in its place")
    cache = CompileCache(file / "graphs")
    with cache.locked("key"):
        assert cache.load("key", 1) is None
        cache.store("key", [Model.from_text(GRAPH)])
    (warning,) = [m for m in caplog.messages if "compile cache" in m]
    assert "cannot be used, so nothing is kept" in warning


def test_a_full_disk_stops_keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    cache = CompileCache(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    cache.store("key", [Model.from_text(GRAPH)])
    assert cache.load("key", 1) is None


SCALE = 2.0


def _scaled(x: Any) -> Any:
    return x * SCALE


class Reads(torch.nn.Module):
    """A module that reads a global through a function, a closure, a lambda and a type."""

    def __init__(self, closed: float = 1.0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.apply_to = lambda x: x * closed
        self.dtype = dtype

    def forward(self, x: Tensor) -> Any:
        return _scaled(self.apply_to(x))


def test_what_code_reads_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {digest(describe(Reads()))}
    assert keys == {digest(describe(Reads()))}
    keys.add(digest(describe(Reads(closed=2.0))))
    keys.add(digest(describe(Reads(dtype=torch.float64))))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    keys.add(digest(describe(Reads())))
    monkeypatch.setattr(sys.modules[__name__], "_scaled", lambda x: x - 1)
    keys.add(digest(describe(Reads())))
    assert len(keys) == 5


def test_a_class_defined_again_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "class Typed(torch.nn.Module):\n    def forward(self, x):\n        return x {} 1\n"
    seen = set()
    for operator in "+-+":
        space: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
        exec(text.format(operator), space)
        seen.add(digest(describe(space["Typed"]())))
    assert len(seen) == 2
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: x)
    patched = digest(describe(torch.nn.Linear(2, 2)))
    monkeypatch.undo()
    assert digest(describe(torch.nn.Linear(2, 2))) != patched


def test_saving_a_config_does_not_change_the_key(tmp_path: Path) -> None:
    model = zoo.build("bert")
    before = digest(describe(model))
    model.save_pretrained(tmp_path)
    assert digest(describe(model)) == before


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


def test_training_leaves_the_key_alone(folder: Path) -> None:
    """Otherwise what was compiled ahead would be compiled again."""
    model = zoo.build("bert")
    data = rows(model, 8)
    for whole_step in (False, True):
        trainer = make(
            model,
            arguments(folder, max_steps=2),
            train_dataset=data,
            eval_dataset=data,
            whole_step=whole_step,
        )
        trainer.compile({name: tensor[:4] for name, tensor in data.batch.items()})
        compiled = dict(trainer.compiler.counts)
        trainer.train()
        trainer.evaluate()
        assert dict(trainer.compiler.counts) == compiled
