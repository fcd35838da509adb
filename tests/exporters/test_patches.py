"""Each patch computes what the original computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.models.beit.modeling_beit import BeitDropPath

from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export, patches
from fuseline.exporters.ctc import ctc_loss
from fuseline.exporters.families.mamba import LONGEST, scan
from fuseline.exporters.verify import Runner
from fuseline.tools.gradient_check import differentiated


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, smoothing: float, weighted: bool) -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(6, 5), torch.tensor([0, 4, -100, 2, 2, -100])
    options: dict[str, Any] = {
        "weight": torch.rand(5) if weighted else None,
        "reduction": reduction,
        "label_smoothing": smoothing,
    }
    expected = F.cross_entropy(logits, target, **options)
    with patches.plain_cross_entropy():
        torch.testing.assert_close(F.cross_entropy(logits, target, **options), expected)


def test_cross_entropy_against_probabilities() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(4, 5), torch.rand(4, 5).softmax(dim=1)
    expected = F.cross_entropy(logits, target, label_smoothing=0.2)
    with patches.plain_cross_entropy():
        torch.testing.assert_close(F.cross_entropy(logits, target, label_smoothing=0.2), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention(causal: bool, mask: str | None) -> None:
    if causal and mask:
        pytest.skip("torch allows one of the two")
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    given = None if mask is None else torch.rand(2, 1, 5, 5) > 0.3
    if given is not None:
        # The first row sees nothing, as at the place of left padding; the others see something.
        given[..., 0] = True
        given[:, :, 0] = False
    if mask == "float":
        given = torch.randn(2, 1, 5, 5)
    options = {"attn_mask": given, "is_causal": causal, "enable_gqa": True}
    expected = F.scaled_dot_product_attention(query, key, value, **options)  # type: ignore[arg-type]
    with patches.plain_attention():
        actual = F.scaled_dot_product_attention(query, key, value, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(actual, expected)


def test_attention_keeps_its_dropout() -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 1, 64, 8)
    with patches.plain_attention():
        one = F.scaled_dot_product_attention(query, query, query, dropout_p=0.5)
        two = F.scaled_dot_product_attention(query, query, query, dropout_p=0.5)
    assert not torch.equal(one, two)


def test_names_are_put_back() -> None:
    before = (F.cross_entropy, F.scaled_dot_product_attention, torch.rand, torch.squeeze, F.dropout)
    own = vars(torch.Tensor).get("squeeze")
    module = torch.nn.Linear(2, 2)
    with patches.traceable(module), patches.without_dropout(module):
        assert F.cross_entropy is not before[0]
    after = (F.cross_entropy, F.scaled_dot_product_attention, torch.rand, torch.squeeze, F.dropout)
    assert before == after
    assert vars(torch.Tensor).get("squeeze") is own


def test_drop_path_keeps_its_rate_and_scale() -> None:
    torch.manual_seed(0)
    module = BeitDropPath(0.25).train()
    before = module.forward
    with patches.plain_drop_path(module):
        assert module.forward != before
        result = module(torch.ones(4000, 3, 2))
    rows = result[:, 0, 0]
    assert torch.equal(result, rows[:, None, None].expand(-1, 3, 2))
    assert rows.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (rows > 0).float().mean().item() == pytest.approx(0.75, abs=0.03)


class GatedDropPath(torch.nn.Module):
    """Of that name, with a weight and a rate called otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.p, self.gate = 0.5, torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        kept = (torch.rand(len(hidden), 1) >= self.p) if self.training else 1.0
        return (hidden * self.gate * kept).sum()


def test_what_is_only_called_drop_path_runs_its_own_code() -> None:
    module = GatedDropPath()
    x = torch.rand(4, 2) + 0.5
    step = TrainingStep(differentiated(export(module, train=True, example_inputs={"hidden": x})), threads=1)
    drawn = [float(step.run({"hidden": x.numpy()}, seed=seed)["loss"]) for seed in range(8)]
    assert len(set(drawn)) > 1
    assert step.gradients["gate"] == pytest.approx(drawn[-1] / 3.0, rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_ctc(reduction: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 20, 9, requires_grad=True)
    labels = torch.tensor([[3, 3, 5, 1], [2, 8, 4, -100], [7, -100, -100, -100]])
    frames = torch.tensor([20, 18, 9])
    kept = labels >= 0
    expected = F.ctc_loss(
        F.log_softmax(logits, dim=-1).transpose(0, 1),
        labels.masked_select(kept),
        frames,
        kept.sum(dim=-1),
        reduction=reduction,
    )
    actual = ctc_loss(logits, labels, frames, 0, reduction)
    torch.testing.assert_close(actual, expected)
    one, two = (torch.autograd.grad(loss, logits)[0] for loss in (actual, expected))
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_scan_is_the_recurrence() -> None:
    torch.manual_seed(0)
    decay, added = torch.rand(2, 3, 11, 4), torch.randn(2, 3, 11, 4)
    state, states = torch.zeros(2, 3, 4), []
    for t in range(11):
        state = decay[:, :, t] * state + added[:, :, t]
        states.append(state)
    torch.testing.assert_close(scan(decay, added), torch.stack(states, dim=2))


@pytest.mark.parametrize("module", [torch.nn.ReLU6(), torch.nn.Hardtanh(-2.0, 3.0)])
def test_nothing_flows_back_from_the_corners(module: torch.nn.Module) -> None:
    values = torch.tensor([-3.0, -2.0, -1.0, 0.0, 0.5, 3.0, 5.0, 6.0, 7.0], requires_grad=True)
    expected = module(values)
    with patches.plain_hardtanh():
        actual = module(values)
    assert torch.equal(actual, expected)
    one, two = (torch.autograd.grad(result.sum(), values)[0] for result in (actual, expected))
    assert torch.equal(one, two)


class Scanned(torch.nn.Module):
    """The recurrence alone."""

    def forward(self, decay: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return scan(decay, added)


def test_a_sequence_beyond_the_scan_s_reach_is_an_error() -> None:
    axes = {2: "length"}
    given = {"decay": torch.full((1, 1, 5, 1), 0.999), "added": torch.ones(1, 1, 5, 1)}
    model = export(Scanned(), example_inputs=given, dynamic={"decay": axes, "added": axes}, check=False)
    runner = Runner(model)

    def last(length: int) -> float:
        shape = (1, 1, length, 1)
        feeds = {"decay": np.full(shape, 0.999, np.float32), "added": np.ones(shape, np.float32)}
        return float(runner(feeds)["output"][0, 0, -1, 0])

    assert last(LONGEST) == pytest.approx((1 - 0.999**LONGEST) / 0.001, rel=1e-3)
    with pytest.raises(Exception, match="out of data bounds"):
        last(LONGEST + 1)
