"""Documents that share a row train as if each had its own; padding to few sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from trainer_harness import arguments, assert_same, both

from fuseline import BucketingCollator, FuselineError, PackingCollator
from fuseline.tools.campaigns import zoo

LENGTHS = (7, 2, 11, 1, 5, 9, 3, 12, 4, 6, 8, 10)


def documents(lengths: tuple[int, ...] = LENGTHS, vocabulary: int = 90) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(3)
    return [{"input_ids": torch.randint(1, vocabulary, (n,), generator=draw).tolist()} for n in lengths]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "masked"), [("gpt2", False), ("llama", False), ("opt", True)])
def test_documents_in_a_row_are_exact(name: str, masked: bool) -> None:
    """In torch itself: loss and gradients of the packed batch are those of the documents one by one."""
    model = zoo.build(name, attention="sdpa").train()
    collator = PackingCollator(model, max_length=16)
    assert collator.masked is masked
    data = documents()
    batch = collator(data)
    assert batch["input_ids"].shape == (5, 16)  # 78 tokens
    packed = model(**batch).loss
    packed.backward()
    found = gradients(model)
    model.zero_grad()
    predicted = sum(LENGTHS) - len(LENGTHS)
    alone = torch.zeros(())
    for document in data:
        ids = torch.tensor([document["input_ids"]])
        if ids.shape[1] > 1:  # of one token nothing is predicted
            alone = alone + model(input_ids=ids, labels=ids).loss * (ids.shape[1] - 1) / predicted
    alone.backward()
    expected = gradients(model)
    largest = max(float(g.abs().max()) for g in expected.values())
    assert packed.item() == pytest.approx(alone.item(), rel=1e-5)
    for parameter, gradient in expected.items():
        assert float((found[parameter] - gradient).abs().max()) <= 1e-5 * largest, parameter


@pytest.mark.parametrize(
    ("name", "whole_step"),
    [("gpt2", False), ("llama", True), pytest.param("opt", False, marks=pytest.mark.slow)],
)
def test_packed_batches_follow_the_stock_trainer(name: str, whole_step: bool, folder: Path) -> None:
    model = zoo.build(name)
    args = arguments(folder, max_steps=6, per_device_train_batch_size=6)
    collator = PackingCollator(model, max_length=16)
    ours = {"whole_step": whole_step, "check": True}
    stock, mine = both(model, args, documents(), ours=ours, data_collator=collator)
    keys = [n for n, _ in model.named_parameters() if n.endswith("k_proj.bias")]
    assert_same(stock, mine, relative=1e-4, absolute=1e-4, free=keys)
    assert stock.norms == pytest.approx(mine.norms, rel=1e-3)
    assert set(mine.trainer.bridge.counts) == {"native" if whole_step else "loss"}


def test_labels_and_hidden_tokens_of_a_document() -> None:
    collator = PackingCollator(zoo.build("gpt2"), max_length=8, pad_token_id=9)
    first = {"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0], "labels": [-100, 2, 3, -100]}
    batch = collator([first, {"input_ids": torch.tensor([4, 5])}])
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5]]
    assert batch["labels"].tolist() == [[-100, 2, 3, -100, 5]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    batch = collator([{"input_ids": [7] * 6}, {"input_ids": [8] * 4}])
    assert batch["input_ids"].tolist() == [[7] * 6, [8, 8, 8, 8, 9, 9]]
    assert batch["position_ids"].tolist()[1] == [0, 1, 2, 3, 0, 0]


def test_what_cannot_be_packed_is_refused() -> None:
    for name, found in (("bloom", "mixes documents"), ("bert", "gives no scores for each token")):
        with pytest.raises(FuselineError, match=found):
            PackingCollator(zoo.build(name), max_length=16)
    collator = PackingCollator(zoo.build("gpt2"), max_length=4)
    for document, found in (
        ({"input_ids": [1] * 5}, "document 0 of the batch has 5 tokens, a row 4"),
        ({"input_ids": []}, "document 0 of the batch is empty"),
        ({"input_ids": [1, 2], "labels": 1}, "2 tokens and labels of"),
    ):
        with pytest.raises(FuselineError, match=found):
            collator([document])


def test_making_a_collator_leaves_the_model_and_random_numbers() -> None:
    model = zoo.build("gpt2").train()
    before = torch.get_rng_state()
    PackingCollator(model, max_length=16)
    assert model.training
    assert torch.equal(before, torch.get_rng_state())


def padding(kind: str) -> Any:
    from tokenizers import Tokenizer, models

    words = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")),
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )
    return getattr(transformers, kind)(tokenizer)


@pytest.mark.parametrize(
    "kind",
    ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForLanguageModeling"],
)
def test_padded_to_the_smallest_size_that_fits(kind: str) -> None:
    collator = BucketingCollator(padding(kind), buckets=(8, 4, 16))
    for length, size in ((1, 4), (4, 4), (5, 8), (9, 16), (17, 32)):
        rows = [{"input_ids": [1] * n, "attention_mask": [1] * n} for n in (1, length)]
        if "Token" in kind:
            rows = [{**row, "labels": row["input_ids"]} for row in rows]
        batch = collator(rows)
        assert {tuple(value.shape) for value in batch.values()} == {(2, size)}
        assert batch["attention_mask"].sum() == 1 + length


def test_buckets_need_a_collator_that_pads() -> None:
    with pytest.raises(FuselineError, match="function has no pad_to_multiple_of"):
        BucketingCollator(transformers.default_data_collator, buckets=(8,))
    with pytest.raises(FuselineError, match="buckets are lengths from 1 on, not"):
        BucketingCollator(padding("DataCollatorWithPadding"), buckets=())
