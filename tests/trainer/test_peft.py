"""LoRA: only the adapters are differentiated, and the result is a normal adapter."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from trainer_harness import PIPELINE, arguments, assert_same, loss_runner, rows, train

from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer import Trainer

peft = pytest.importorskip("peft")


def adapted() -> Any:
    torch.manual_seed(0)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_dropout=0.0, target_modules=["query", "value"])
    return peft.get_peft_model(zoo.build("bert"), config)


@pytest.mark.parametrize("whole_step", [False, True], ids=["ordinary", "whole"])
def test_prompts_are_trained_with_what_else_trains(folder: Path, whole_step: bool) -> None:
    """Their gradient goes through the model's inputs, and the model sees them before the batch."""
    torch.manual_seed(0)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    model = peft.get_peft_model(zoo.build("gpt2", num_hidden_layers=1), config)
    model.get_base_model().transformer.ln_f.requires_grad_(True)
    data = rows(model.get_base_model(), 8)
    args = arguments(folder, max_steps=2)
    stock = train(transformers.Trainer, copy.deepcopy(model), args, data)
    mine = train(Trainer, copy.deepcopy(model), args, data, whole_step=whole_step, check=False)
    assert_same(stock, mine, relative=1e-6, absolute=1e-6)


def test_lora_follows_the_stock_trainer(folder: Path) -> None:
    model = adapted()
    data = rows(model.get_base_model(), 20)
    args = arguments(folder, max_steps=6)
    stock = train(transformers.Trainer, copy.deepcopy(model), args, data)
    mine = train(Trainer, copy.deepcopy(model), args, data, fallback="error", pipeline=PIPELINE)
    assert_same(stock, mine, relative=1e-4, absolute=1e-4)
    trainer = mine.trainer
    gradients = [o for o in loss_runner(trainer).outputs if o.endswith("_grad")]
    assert gradients
    assert all("lora" in g or "modules_to_save" in g for g in gradients)
    trainer.save_model(str(folder / "adapter"))
    loaded = peft.PeftModel.from_pretrained(zoo.build("bert"), folder / "adapter")
    for name, expected in trainer.model.named_parameters():
        if "lora" in name:
            assert torch.equal(dict(loaded.named_parameters())[name], expected)
