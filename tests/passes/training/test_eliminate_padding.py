"""Loss and gradients without padding against torch, wherever the padding is; and that none is computed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

from fuseline import kernels
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels.evaluate import create_session
from fuseline.tools.campaigns import zoo
from fuseline.tools.golden.cases import parse_model
from fuseline.tools.trainer.precision import in_precision

pytestmark = pytest.mark.native

MODELS = {
    "bert": "sdpa",
    "bert-token": "eager",
    "gpt2": "sdpa",
    "lilt": "eager",  # two streams that add their scores to each other's
    "llama": "sdpa",
    "t5": "eager",
    "bart": "sdpa",
    "gpt2-classifier": "sdpa",  # reads the last token that is no padding
}
SEQUENCES = {"t5": 2, "bart": 2}
"""Those with a decoder behind the encoder: each has its own tokens."""
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
    return Pipeline.resolve("training")


@functools.cache
def step_of(name: str, dropout: float = 0.0) -> TrainingStep:
    result = training().run(exported(name, dropout)[1])
    (record,) = [r for r in result.records if r.name == "eliminate-padding"]
    assert record.changes == SEQUENCES.get(name, 1), record.rejections
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


def mixed_row(length: int, draw: torch.Generator) -> torch.Tensor:
    kind, count = (int(torch.randint(most, (), generator=draw)) for most in (5, length + 1))
    right = torch.arange(length)[None] < count
    scattered = torch.rand((1, length), generator=draw) < torch.rand((), generator=draw)
    return [right, right.flip(1), scattered, torch.ones_like(right), torch.zeros_like(right)][kind]


def padded(name: str, padding: str, batch: int = 4, length: int = 13) -> dict[str, torch.Tensor]:
    inputs = zoo.batch(exported(name)[0], batch=batch, seq=length, seed=batch)
    inputs["attention_mask"] = mask_of(padding, batch, length).to(torch.int64)
    if inputs["labels"].dim() == 2:
        labelled = mask_of(padding, *inputs["labels"].shape)
        inputs["labels"] = inputs["labels"].masked_fill(~labelled, IGNORED)
        inputs["labels"][-1, -1] = 1  # never nothing at all
    return inputs


def torchs(model: Any, inputs: dict[str, torch.Tensor]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients."""
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.item(), {n: p.grad.numpy().copy() for n, p in model.named_parameters() if p.grad is not None}


def distance(found: Mapping[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest difference between gradients, of the largest gradient."""
    largest = max(float(np.abs(g).max()) for g in expected.values())
    return max(float(np.abs(found[name] - g).max()) for name, g in expected.items()) / largest


def compare(name: str, inputs: dict[str, torch.Tensor], step: TrainingStep | None = None) -> None:
    step = step or step_of(name)
    loss, expected = torchs(exported(name)[0], inputs)
    np.testing.assert_allclose(step.run(inputs)["loss"], loss, rtol=1e-5)
    assert distance(step.gradients, expected) <= 1e-5


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_torchs(name: str, padding: str) -> None:
    compare(name, padded(name, padding))


@pytest.mark.parametrize("name", MODELS)
def test_random_masks_of_any_density(name: str) -> None:
    """Every row padded in its own way: not at all, wholly, on one side, or anywhere at any density."""
    for seed in range(12):
        draw = torch.Generator().manual_seed(seed)
        batch, length = (int(torch.randint(1, most, (), generator=draw)) for most in (6, 20))
        inputs = padded(name, "full", batch, length + 1)
        mask = torch.cat([mixed_row(length + 1, draw) for _ in range(batch)])
        inputs["attention_mask"] = mask.to(torch.int64)
        if inputs["labels"].dim() == 2:
            labelled = torch.rand(inputs["labels"].shape, generator=draw) < torch.rand((), generator=draw)
            inputs["labels"] = inputs["labels"].masked_fill(~labelled, IGNORED)
            inputs["labels"][0, -1] = 1
        compare(name, inputs)


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


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_values_that_are_computed_again(name: str) -> None:
    sizes = "sizes=batch=8+sequence=64"
    planning = f"hoist-shapes,order-for-memory{{{sizes}}},recompute{{what=cheap,{sizes}}}"
    result = Pipeline.parse(planning).run(training().run(exported(name)[1]).model)
    assert result.records[-1].changes > 0
    step = TrainingStep(result.model, threads=1)
    for padding in PADDINGS:
        compare(name, padded(name, padding, 8, 64), step)


@pytest.mark.skipif(not kernels.multiplies_bf16(), reason="no products in bf16")
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_as_near_as_torchs(name: str, padding: str) -> None:
    model, inputs = exported(name)[0], padded(name, padding)
    loss, expected = torchs(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        _, rounded = torchs(model, inputs)
    step = bf16_step(name)
    np.testing.assert_allclose(step.run(inputs)["loss"], loss, rtol=1e-3)
    assert 1e-5 < distance(step.gradients, expected) <= 2 * distance(rounded, expected)


@functools.cache
def bf16_step(name: str) -> TrainingStep:
    return TrainingStep(in_precision(training(), "bf16").run(exported(name)[1]).model, threads=1)


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
    inputs, runs = padded("bert", "right", 8, 16), 200
    watched = ["classifier.weight", "bert.encoder.layer.0.attention.self.query.weight"]
    found = []
    for step in steps:
        rows = []
        for seed in range(runs):
            loss = step.run(inputs, seed=seed)["loss"]
            rows.append(np.concatenate([np.ravel(loss), *(step.gradients[n].ravel() for n in watched)]))
        found.append(np.array(rows, np.float64))
    error = np.sqrt(sum(rows.var(axis=0) for rows in found) / runs)
    assert error.min() > 0
    assert (np.abs(found[0].mean(axis=0) - found[1].mean(axis=0)) / error).max() < 5


SHOWING = """
g (int64[B,S] ids, int64[B,S] shown, float[B,1,1,S] bias, float[B,1,1,2] q) => (float[B,1,1,2] y)
  <float[2,2] w = {1,-0.5,0.25,2}, float[3,2] table = {1,2,-1,0.5,0.25,-2}, float[1] ratio = {0},
   int64[1] seed = {0}, float zero = {0}, float low = {-3.4e38}, int64[2] axes = {1,2},
   int64[4] four = {0,0,1,2}> {
  keep = Cast<to = 9>(shown)
  wide = Unsqueeze(keep, axes)
  mask = Where(wide, zero, low)
  x, x1 = fuseline.FusedEmbedding(table, ids)
  k = MatMul(x, w)
  k4 = Reshape(k, four)
  y, y1, y2, y3 = fuseline.FusedAttention(q, k4, k4, mask, bias, ratio, seed)
}
"""


@pytest.mark.parametrize("given", [0.0, 2.0, 3.4e38, -3.4e38])
def test_a_bias_may_show_what_the_mask_hides(given: float) -> None:
    before = Model.from_proto(parse_model(SHOWING))
    result = Pipeline.parse("infer-shapes,eliminate-padding").run(before)
    assert result.records[-1].changes == 1, result.records[-1].rejections
    draw = np.random.default_rng(0)
    feeds = {
        "ids": draw.integers(0, 3, (2, 5)),
        "shown": np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]),
        "bias": np.zeros((2, 1, 1, 5), np.float32),
        "q": draw.standard_normal((2, 1, 1, 2)).astype(np.float32),
    }
    feeds["bias"][:, :, :, -1] = given
    found, expected = (create_session(m.to_proto()).run(None, feeds)[0] for m in (result.model, before))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
