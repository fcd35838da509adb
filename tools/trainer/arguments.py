"""Training arguments that know the optimizer `adamw_fuseline`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers
from transformers.training_args import OptimizerNames

__all__ = ["ADAMW", "Seq2SeqTrainingArguments", "TrainingArguments"]

ADAMW = "adamw_fuseline"


class _FuselineOptimizer:
    """Lets `optim` be "adamw_fuseline", which the stock list of names does not hold."""

    optim: Any

    def __post_init__(self) -> None:
        wanted = self.optim
        if wanted == ADAMW:
            self.optim = OptimizerNames.ADAMW_TORCH
        super().__post_init__()  # type: ignore[misc]
        if wanted == ADAMW:
            self.optim = ADAMW


@dataclass
class TrainingArguments(_FuselineOptimizer, transformers.TrainingArguments):
    """`transformers.TrainingArguments`; `optim` may also be "adamw_fuseline"."""


@dataclass
class Seq2SeqTrainingArguments(_FuselineOptimizer, transformers.Seq2SeqTrainingArguments):
    """`transformers.Seq2SeqTrainingArguments`; `optim` may also be "adamw_fuseline"."""
