"""The stock Trainer and ours on the same model, data and seed, and what each step gave."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from torch import Tensor, nn

from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.trainer import Trainer, TrainingArguments

#: What the trainers under test compile with.
PIPELINE = os.environ.get("FUSELINE_TEST_PIPELINE", "training")

#: Parameters that the loss does not depend on. Question answering takes the softmax over positions, and its
#: bias and the last norm's add the same number at every position; a bias of the keys adds the same number to
#: every score of a query. The gradient is then rounding alone, of which an optimizer that divides by the
#: gradient's size makes whole steps: no two implementations agree, torch's own attentions included.
FREE = {
    "bert": [f"bert.encoder.layer.{i}.attention.self.key.bias" for i in (0, 1)],
    "bert-qa": ["qa_outputs.bias", "bert.encoder.layer.1.output.LayerNorm.bias"],
}


@dataclass
class Record:
    """The loss of every micro-batch, the gradient norm of every step, and the final weights."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    trainer: Any = None


def rows(model: nn.Module, count: int, length: int = 8, seed: int = 0) -> Rows:
    return Rows(zoo.batch(model, count, length, seed=seed))


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_steps": 20,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "max_grad_norm": 0.5,
        "warmup_steps": 3,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "use_cpu": True,
        "seed": 7,
    }
    return TrainingArguments(**{**settings, **changes})


def recording(kind: type[Any]) -> type[Any]:
    """A trainer of this kind that remembers every loss at full precision."""

    class Recording(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.record = Record(trainer=self)
            super().__init__(*args, **kwargs)

        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            loss: Tensor = super().training_step(*args, **kwargs)
            self.record.losses.append(float(loss))
            return loss

        def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
            norm = super()._get_grad_norm(*args, **kwargs)
            self.record.norms.append(float(norm))
            return norm

    return Recording


def train(kind: type[Any], model: nn.Module, args: Any, data: Any, **kwargs: Any) -> Record:
    trainer = recording(kind)(copy.deepcopy(model), args, train_dataset=data, **kwargs)
    trainer.train()
    record: Record = trainer.record
    record.weights = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    return record


def both(
    model: nn.Module, args: Any, data: Any, *, ours: dict[str, Any] | None = None, **kwargs: Any
) -> tuple[Record, Record]:
    """(stock, ours), the second refusing to fall back."""
    stock = train(transformers.Trainer, model, args, data, **kwargs)
    chosen = {"fallback": "error", "pipeline": PIPELINE, "check": False, **(ours or {})}
    return stock, train(Trainer, model, args, data, **chosen, **kwargs)


def make(model: nn.Module, args: Any, **kwargs: Any) -> Trainer:
    """Our trainer on this very model, refusing to fall back unless told otherwise."""
    return Trainer(model, args, **{"fallback": "error", "pipeline": PIPELINE, "check": False, **kwargs})


def assert_same(
    stock: Record, mine: Record, *, relative: float, absolute: float, free: Sequence[str] = ()
) -> None:
    """The losses of every batch and the final weights agree, all but those of parameters without effect."""
    assert len(stock.losses) == len(mine.losses)
    for step, (expected, found) in enumerate(zip(stock.losses, mine.losses, strict=True)):
        assert abs(found - expected) <= relative * abs(expected), f"step {step}: {found} against {expected}"
    for name in stock.weights.keys() - set(free):
        expected_weight = stock.weights[name]
        difference = float((mine.weights[name] - expected_weight).abs().max())
        assert difference <= absolute, f"{name} differs by {difference}"


def loss_runner(trainer: Any) -> Any:
    """What runs the training graph of the first kind of call that was made."""
    graphs = trainer.bridge._graphs
    (runner,) = graphs.ready(next(iter(graphs._ways._found.values())), "loss")
    return runner
