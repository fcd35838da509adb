"""Training arguments that know the optimizer `adamw_fuseline`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import transformers
from transformers.training_args import OptimizerNames

__all__ = ["ADAMW", "Seq2SeqTrainingArguments", "TrainingArguments"]

logger = logging.getLogger(__name__)

ADAMW = "adamw_fuseline"
_OF_ORT_TRAINER = "adamw_ort_fused"


class _FuselineOptimizer:
    """Lets `optim` be "adamw_fuseline", which the stock list of names does not hold."""

    optim: Any

    def __post_init__(self) -> None:
        if self.optim == _OF_ORT_TRAINER:
            logger.warning("optim=%r is ORTTrainer's; %r takes its place", _OF_ORT_TRAINER, ADAMW)
            self.optim = ADAMW
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
