"""Steps of models with a vocabulary: the loss in chunks and gradients of tables as rows, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fuseline
from fuseline.engine.memory import Simulation, at_sizes, symbols
from fuseline.engine.memory.planning import OverBudgetError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep

pytestmark = pytest.mark.native

WORDS, WIDTH = 3000, 24
STEPS = 3


class Language(torch.nn.Module):
    """A table, a layer and a head that may be the table again."""

    def __init__(self, *, tied: bool, bias: bool, reduction: str = "mean") -> None:
        super().__init__()
        self.table = torch.nn.Embedding(WORDS, WIDTH, padding_idx=1)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=bias)
        self.reduction = reduction
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Any, labels: Any) -> Any:
        hidden = self.norm(torch.nn.functional.gelu(self.layer(self.table(ids))))
        scores = self.head(hidden).view(-1, WORDS)
        loss = torch.nn.functional.cross_entropy(scores, labels.view(-1), reduction=self.reduction)
        return {"loss": loss, "scores": scores}


def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(STEPS):
        ids = rng.integers(0, 40, (4, 50))  # each row of the table many times
        labels = rng.integers(0, WORDS, (4, 50))
        labels[rng.random((4, 50)) < 0.3] = -100
        made.append({"ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)})
    return made


def step_of(net: Language) -> Model:
    exported = fuseline.export(net.train(), train=True, example_inputs=batches()[0], check=False)
    return Pipeline.parse("training,insert-optimizer").run(exported).model


def trained(model: Model) -> tuple[list[float], dict[str, Any]]:
    step = TrainingStep(model, threads=2)
    losses = [float(step.run(batch)["loss"]) for batch in batches()]
    return losses, step.state_dict() | {f"{n}.m": v.copy() for n, v in step.moments("exp_avg_sq").items()}


def trained_in_torch(net: Language) -> tuple[list[float], dict[str, Any]]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        loss = net(**batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: value.detach().numpy() for name, value in net.state_dict().items()}


@pytest.mark.parametrize(
    ("tied", "bias", "reduction"), [(True, False, "mean"), (False, True, "sum"), (True, True, "mean")]
)
def test_every_plan_follows_torch(tied: bool, bias: bool, reduction: str) -> None:
    torch.manual_seed(0)
    net = Language(tied=tied, bias=bias, reduction=reduction)
    made = step_of(net)
    chunked = Pipeline.parse("chunk-loss").run(made).model
    kinds = {node.op_type for node in chunked.graph}
    assert "FusedLinearCrossEntropy" in kinds
    assert "FusedCrossEntropyGrad" not in kinds
    early = Pipeline.parse("release-early,sparse-embedding-gradient").run(chunked).model
    assert tied == ("FusedAdamWRows" not in {node.op_type for node in early.graph})
    found = [trained(model) for model in (made, chunked, early)]
    losses, state = trained_in_torch(net)
    for own, own_state in found:
        np.testing.assert_allclose(own, losses, rtol=1e-5)
        for name, value in state.items():
            np.testing.assert_allclose(own_state[name], value, atol=2e-5, err_msg=name)
    for name, value in found[1][1].items():
        np.testing.assert_array_equal(value, found[2][1][name], err_msg=name)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_give_the_same_weights_to_the_bit(tied: bool) -> None:
    torch.manual_seed(0)
    text = "training,insert-optimizer,release-early"
    exported = fuseline.export(
        Language(tied=tied, bias=False).train(), train=True, example_inputs=batches()[0], check=False
    )
    dense = Pipeline.parse(text).run(exported, disable=["sparse-embedding-gradient"]).model
    rows = Pipeline.parse(f"{text},sparse-embedding-gradient").run(exported).model
    name = "FusedEmbeddingGradAdd" if tied else "FusedAdamWRows"
    assert name in {node.op_type for node in rows.graph}
    assert name not in {node.op_type for node in dense.graph}
    (losses, state), (other_losses, other) = trained(dense), trained(rows)
    assert losses == other_losses
    for key, value in state.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


def test_the_peak_falls_and_scores_can_still_be_asked_for() -> None:
    torch.manual_seed(0)
    made = step_of(Language(tied=True, bias=False))
    asked = Pipeline.parse("chunk-loss").run(made).model
    batch = batches()[0]
    one, other = TrainingStep(made, threads=1), TrainingStep(asked, threads=1)
    assert other.memory(batch).peak < 0.7 * one.memory(batch).peak
    scores = [step.run(batch, ["loss", "scores"])["scores"] for step in (one, other)]
    np.testing.assert_array_equal(*scores)
    assert list(other.run(batch, ["scores"])) == ["scores"], "without the loss too"


def test_a_budget_takes_the_loss_in_chunks() -> None:
    torch.manual_seed(0)
    made = step_of(Language(tied=True, bias=False))
    whole = Simulation(at_sizes(made, dict.fromkeys(symbols(made), 4))).peak
    step = TrainingStep(made, threads=1, memory_budget="2.2MB", largest=batches()[0])
    assert step.memory_plan is not None
    assert "loss in chunks" in step.memory_plan.name
    assert step.memory(batches()[0]).peak <= 2_200_000 < whole
    for outputs in (["scores"], ["loss", "scores"]):
        with pytest.raises(OverBudgetError, match="this run would take"):
            step.run(batches()[0], outputs)
