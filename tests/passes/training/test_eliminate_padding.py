"""Loss and gradients without padding against torch, wherever the padding is; and that none is computed."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels.evaluate import create_session
from fuseline.tools.campaigns import zoo

pytestmark = pytest.mark.native

MODELS = {
    "bert": "sdpa",
    "bert-token": "eager",
    "gpt2": "sdpa",
    "llama": "sdpa",
    "t5": "eager",
}
IGNORED = -100
PADDINGS = ["right", "left", "middle", "sparse", "full", "empty"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@functools.cache
def exported(name: str, dropout: float = 0.0) -> tuple[Any, Model]:
    model = zoo.build(name, attention=MODELS[name], dropout=dropout)
    return model, export(model, train=True, check=False)


def training() -> Pipeline:
    """The training pipeline with the pass behind the native operators."""
    stages = Pipeline.resolve("training").stages
    place = [str(stage) for stage in stages].index("native-softmax") + 1
    added = Pipeline.parse("eliminate-common-subexpressions,eliminate-padding").stages
    return Pipeline((*stages[:place], *added, *stages[place:]))


@functools.cache
def step_of(name: str, dropout: float = 0.0) -> TrainingStep:
    result = training().run(exported(name, dropout)[1])
    (record,) = [r for r in result.records if r.name == "eliminate-padding"]
    assert record.changes == 1, record.rejections
    return TrainingStep(result.model, threads=1)


def mask_of(padding: str, batch: int, length: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(length)
    counts = torch.randint(1, length + 1, (batch, 1), generator=draw)
    mask = torch.arange(length)[None] < counts
    if padding == "left":
        return mask.flip(1)
    if padding in ("middle", "sparse"):
        share = 0.6 if padding == "middle" else 0.15
        return torch.rand((batch, length), generator=draw) < share
    if padding == "full":
        return torch.ones_like(mask)
    if padding == "empty":  # a sequence of nothing else
        mask[0] = False
    return mask


def padded(name: str, padding: str, batch: int = 4, length: int = 13) -> dict[str, torch.Tensor]:
    inputs = zoo.batch(exported(name)[0], batch=batch, seq=length, seed=batch)
    mask = mask_of(padding, batch, length)
    inputs["attention_mask"] = mask.to(torch.int64)
    if inputs["labels"].shape == mask.shape:
        inputs["labels"] = inputs["labels"].masked_fill(~mask, IGNORED)
        inputs["labels"][-1, -1] = 1  # never nothing at all
    return inputs


def compare(name: str, inputs: dict[str, torch.Tensor]) -> None:
    model, step = exported(name)[0], step_of(name)
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    np.testing.assert_allclose(step.run(inputs)["loss"], loss.item(), rtol=1e-5)
    expected = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    largest = max(float(np.abs(g).max()) for g in expected.values())
    for parameter, gradient in expected.items():
        assert np.abs(step.gradients[parameter] - gradient).max() <= 1e-5 * largest, parameter


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_torchs(name: str, padding: str) -> None:
    compare(name, padded(name, padding))


@pytest.mark.parametrize(("batch", "length"), [(1, 9), (3, 1), (1, 1)])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_one_sequence_or_one_token(name: str, batch: int, length: int) -> None:
    if name == "gpt2" and length == 1:
        pytest.skip("nothing is left to predict")
    compare(name, padded(name, "right", batch, length))


@pytest.mark.parametrize("name", ["bert-token", "gpt2"])
def test_labels_of_padding_count(name: str) -> None:
    """Whoever labels padding has it trained, as in torch."""
    inputs = padded(name, "left")
    inputs["labels"] = inputs["labels"].masked_fill(inputs["labels"] == IGNORED, 2)
    compare(name, inputs)


@functools.cache
def counting(name: str) -> Model:
    """The graph up to the gradient, which gives the rows that attention runs on."""
    graph = training().run(exported(name)[1], stop_after="eliminate-padding").model
    node = next(n for n in graph.graph if n.op_type.endswith("Rows") and n.domain == "fuseline")
    rows = node.inputs[5 if "Packed" in node.op_type else 8]
    graph.graph.outputs.clear()
    graph.graph.outputs.append(rows)
    return Pipeline.parse("remove-unused").run(graph).model


@pytest.mark.parametrize("padding", PADDINGS)
def test_only_what_counts_is_computed(padding: str) -> None:
    """The first token of each sequence, which the classifier reads, and the tokens that the mask shows."""
    inputs = padded("bert", padding)
    wanted = inputs["attention_mask"].bool()
    wanted[:, 0] = True
    graph = counting("bert")
    names = [v.name for v in graph.graph.inputs]
    session = create_session(ir.to_proto(graph.ir))
    (rows,) = session.run(None, {n: v.numpy() for n, v in inputs.items() if n in names})
    assert rows.tolist() == torch.nonzero(wanted.flatten()).flatten().tolist()


def test_scores_of_all_tokens_are_there_for_who_asks() -> None:
    inputs = padded("bert-token", "right")
    with torch.no_grad():
        expected = exported("bert-token")[0](**inputs)
    step = step_of("bert-token")
    for found in (step.run(inputs, ["loss", "logits"]), step.evaluate(inputs)):
        np.testing.assert_allclose(found["loss"], expected.loss, rtol=1e-5)
        np.testing.assert_allclose(found["logits"], expected.logits, atol=1e-5)


def test_dropout_keeps_the_expectation() -> None:
    """Means over many seeds; without padding fewer numbers are drawn, so that single runs differ."""
    whole = training().run(exported("bert", 0.1)[1], disable=["eliminate-padding"]).model
    steps = step_of("bert", 0.1), TrainingStep(whole, threads=1)
    inputs = padded("bert", "right", 8, 16)
    losses = [np.array([float(step.run(inputs, seed=seed)["loss"]) for seed in range(200)]) for step in steps]
    spread = np.sqrt(sum(found.var() for found in losses) / 200)
    assert losses[0].std() > 0
    assert abs(losses[0].mean() - losses[1].mean()) < 5 * spread
