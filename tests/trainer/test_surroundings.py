"""What is around a call decides too: its sizes, hooks on all modules, autocast, and what else it returns."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from trainer_harness import arguments, assert_same, both
from trainer_nets import MODES, SLOW_MODES, Net, points, seeded, used

from fuseline.tools.trainer import Trainer

SEQUENTIAL = {"train_sampling_strategy": "sequential", "num_train_epochs": 2, "max_steps": -1}


@SLOW_MODES
@pytest.mark.parametrize(("factor", "in_torch"), [(3.0, 4), (1.0, 0)])
def test_code_that_decides_by_a_size(factor: float, in_torch: int, folder: Path, whole_step: bool) -> None:
    """Batches of 12 and of 4: another branch is torch's, unless it gives the same."""
    model = seeded(lambda net, hidden: hidden * factor if hidden.shape[0] > 8 else hidden)
    args = arguments(folder, per_device_train_batch_size=12, **SEQUENTIAL)
    ours = {"whole_step": whole_step, "fallback": "torch", "cache_dir": "off", "check": True}
    stock, mine = both(model, args, points(28), ours=ours)
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    report = mine.trainer.report()
    assert (report.in_torch, report.on_graph) == (in_torch, 6 - in_torch)
    if in_torch:
        assert any("decides by sizes" in reason and "<= 8" in reason for reason in report.reasons)


@MODES
def test_a_batch_that_a_norm_refuses_is_the_stock_error(folder: Path, whole_step: bool) -> None:
    model = seeded(lambda net, hidden: net.norm(hidden))
    model.norm = nn.BatchNorm1d(6)
    for kind, chosen in ((transformers.Trainer, {}), (Trainer, {"whole_step": whole_step})):
        args = arguments(folder, **{**SEQUENTIAL, "num_train_epochs": 1})
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            kind(model, args, train_dataset=points(9), **chosen).train()


class Telling(Net):
    """Returns more than tensors."""

    def __init__(self, more: Callable[[Net, Tensor], Any]) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
        return {**super().forward(x, labels), "more": self.more(self, x)}


def reading(kind: type[Any], read: Callable[[Any], Any]) -> type[Any]:
    class Reading(kind):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
            outputs = model(**inputs)
            return outputs["loss"] * read(outputs["more"])  # type: ignore[no-any-return]

    return Reading


@MODES
@pytest.mark.parametrize(
    ("more", "read", "reason"),
    [
        (lambda net, x: x.shape[0], lambda rows: rows, "'more', a number that depends on the batch"),
        (lambda net, x: x.shape, lambda shape: shape[0], "'more.0', a number that depends on the batch"),
        (lambda net, x: types.SimpleNamespace(x=x), lambda held: held.x.abs().mean(), "type SimpleNamespace"),
        (lambda net, x: net.first(x).mean().item(), lambda mean: 2 + mean, "'more', a number"),
        (lambda net, x: net.first.weight, lambda weight: weight.square().sum(), "type Parameter"),
        (lambda net, x: 3, lambda three: three, None),
    ],
)
def test_results_that_are_no_tensors(
    more: Callable[[Net, Tensor], Any],
    read: Callable[[Any], Any],
    reason: str | None,
    folder: Path,
    whole_step: bool,
) -> None:
    weights = []
    for kind, chosen in (
        (transformers.Trainer, {}),
        (Trainer, {"whole_step": whole_step, "cache_dir": "off"}),
    ):
        torch.manual_seed(1)
        model = Telling(more)
        args = arguments(folder, max_steps=3, optim="sgd")
        trainer = reading(kind, read)(model, args, train_dataset=points(), **chosen)
        trainer.train()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    report = trainer.report()
    assert (report.in_torch == 0) == (reason is None)
    assert reason is None or any(reason in told for told in report.reasons)


@contextmanager
def hooked_everywhere() -> Iterator[None]:
    def double(module: Any, given: Any, output: Any) -> Any:
        return 2 * output if isinstance(module, nn.Linear) else None

    hook = register_module_forward_hook(double)
    try:
        yield
    finally:
        hook.remove()


@SLOW_MODES
@pytest.mark.parametrize(
    ("around", "reason"),
    [
        (hooked_everywhere, "hooks on all modules"),
        (lambda: torch.autocast("cpu", dtype=torch.bfloat16), "torch.autocast"),
    ],
)
def test_what_is_set_up_around_the_model(around: Any, reason: str, folder: Path, whole_step: bool) -> None:
    def use(trainer: Any) -> None:
        trainer.train()
        with around():
            trainer.train()

    trainer = used(seeded(), folder, whole_step, use, max_steps=2)
    report = trainer.report()
    assert (report.on_graph, report.in_torch) == (2, 2)
    assert any(reason in told for told in report.reasons)


class Named(NamedTuple):
    loss: Tensor
    logits: Tensor


def test_a_named_tuple_is_filled_in_part(folder: Path) -> None:
    class Naming(Net):
        def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
            return Named(**super().forward(x, labels))

    stock, mine = both(seeded(kind=Naming), arguments(folder, max_steps=2), points())
    assert_same(stock, mine, relative=1e-5, absolute=2e-5)
    assert mine.trainer.report().in_torch == 0
