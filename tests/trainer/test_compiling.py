"""What the user may choose about compiling: pipeline, passes of one's own, dumps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from trainer_harness import arguments, assert_same, both, loss_runner, make, rows
from transformers import PreTrainedTokenizerFast

from fuseline.engine.errors import FuselineError
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns import zoo

PLUGIN = '''
from fuseline.engine.patterns import Fusion


class TanhBySigmoid(Fusion):
    """Tanh(x) → 2·Sigmoid(2x) − 1"""

    name = "tanh-by-sigmoid"
    phase = "pre-gradient"

    def match(self, op, x):
        return op.Tanh(x)

    def replace(self, op, x):
        return op.Sub(op.Mul(op.Sigmoid(op.Mul(x, 2.0)), 2.0), 1.0)
'''


@pytest.mark.parametrize("pipeline", ["training-stock", pytest.param("training", marks=pytest.mark.native)])
def test_ready_pipelines_train_alike(pipeline: str, folder: Path) -> None:
    model = zoo.build("bert")
    ours = {"pipeline": pipeline, "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=4), rows(model, 16), ours=ours)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    native = [n.op_type for n in loss_runner(mine.trainer).model.nodes() if "Fused" in n.op_type]
    assert ("FusedLayerNorm" in native) == (pipeline == "training")


def test_pass_of_ones_own_in_a_pipeline_of_ones_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "passes.py").write_text(PLUGIN)
    text = f"tanh-by-sigmoid,{Pipeline.resolve('training-stock')}"
    model = zoo.build("bert")
    ours = {"pipeline": text, "plugins": [tmp_path / "passes.py"], "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=4), rows(model, 16), ours=ours)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    (record,) = [r for r in mine.trainer.compiler.records["loss"] if r.name == "tanh-by-sigmoid"]
    assert record.changes == 1  # the pooler's


def test_unknown_pipeline_is_named_before_training(folder: Path) -> None:
    with pytest.raises(FuselineError, match="trainig"):
        make(zoo.build("bert"), arguments(folder), pipeline="trainig")


def test_dumps_hold_every_pass_of_every_graph(folder: Path, tmp_path: Path) -> None:
    model = zoo.build("bert")
    data = rows(model, 8)
    trainer = make(
        model, arguments(folder, max_steps=1), train_dataset=data, eval_dataset=data, dump_dir=tmp_path / "d"
    )
    trainer.train()
    trainer.evaluate()
    for graph in ("loss", "evaluate"):
        written = [p.name for p in (tmp_path / "d" / graph).rglob("*") if p.is_file()]
        assert any("layer-norm" in name for name in written), written
        assert {Path(name).suffix for name in written} >= {".diff", ".json"}


def test_tied_weights_stay_tied_and_are_stored_once(folder: Path) -> None:
    model = zoo.build("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    for whole_step in (False, True):
        trainer = make(
            model, arguments(folder, max_steps=3), train_dataset=rows(model, 12), whole_step=whole_step
        )
        before = model.lm_head.weight.detach().clone()
        trainer.train()
        assert model.lm_head.weight is model.transformer.wte.weight
        assert not torch.equal(before, model.lm_head.weight)
        trainer.save_model(str(folder / "saved"))
        loaded = type(model).from_pretrained(folder / "saved")
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
        assert loaded.lm_head.weight.data_ptr() == loaded.transformer.wte.weight.data_ptr()


def test_rows_without_a_label_are_left_out_where_the_loss_alone_is_read(folder: Path) -> None:
    model = zoo.build("bert-mlm")
    data = rows(model, 16)
    labels = data.batch["labels"]
    labels[torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < 0.7] = -100
    ours = {"eval_dataset": data, "cache_dir": "off"}
    stock, mine = both(model, arguments(folder, max_steps=4), data, ours=ours)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    expected = stock.trainer.evaluate(data)
    found = mine.trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-4)
    changes = {
        graph: [r.changes for r in records if r.name == "select-labelled"]
        for graph, records in mine.trainer.compiler.records.items()
    }
    assert changes == {"loss": [1], "evaluate": []}


def test_a_hook_on_the_model_sees_all_outputs(folder: Path) -> None:
    model = zoo.build("bert")
    seen: list[bool] = []
    model.register_forward_hook(lambda module, args, outputs: seen.append("logits" in outputs))
    trainer = make(model, arguments(folder, max_steps=2), train_dataset=rows(model, 8))
    trainer.train()
    assert set(seen) == {True}
    assert trainer.bridge.counts["step"] == 2


@pytest.mark.native
def test_compiled_beforehand_with_the_special_tokens_of_the_tokenizer(folder: Path) -> None:
    """`train` begins by writing them into the model's config."""
    words = {"[PAD]": 7, "[UNK]": 1}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")), pad_token="[PAD]"
    )
    model = zoo.build("gpt2")
    assert model.config.pad_token_id != 7
    kept = {"train_dataset": rows(model, 4), "processing_class": tokenizer, "whole_step": True}
    trainer = make(model, arguments(folder, max_steps=1), **kept)
    trainer.compile(next(iter(trainer.get_train_dataloader())))
    trainer.train()
    assert set(trainer.bridge.counts) == {"native"}
