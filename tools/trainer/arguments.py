"""Training arguments that know the optimizer `adamw_fuseline`."""

from __future__ import annotations

import logging
from dataclasses import Field, dataclass, field
from typing import Any, cast

import transformers
from transformers.training_args import OptimizerNames

__all__ = ["ADAMW", "Seq2SeqTrainingArguments", "TrainingArguments"]

logger = logging.getLogger(__name__)

ADAMW = "adamw_fuseline"
_OF_ORT_TRAINER = "adamw_ort_fused"


def _optim() -> Any:
    """The stock field, to be declared as text: a list of names would keep the command line from others."""
    stock: Field[Any] = transformers.TrainingArguments.__dataclass_fields__["optim"]
    return field(default=stock.default, metadata=dict(stock.metadata))


class _FuselineOptimizer:
    """Lets `optim` be "adamw_fuseline", which the stock list of names does not hold."""

    def __post_init__(self: Any) -> None:
        if self.optim == _OF_ORT_TRAINER:
            logger.warning("optim=%r is ORTTrainer's; %r takes its place", _OF_ORT_TRAINER, ADAMW)
            self.optim = ADAMW
        wanted = self.optim
        if wanted == ADAMW:
            self.optim = OptimizerNames.ADAMW_TORCH
        cast(Any, super()).__post_init__()
        if wanted == ADAMW:
            self.optim = ADAMW


@dataclass
class TrainingArguments(_FuselineOptimizer, transformers.TrainingArguments):
    """`transformers.TrainingArguments`; `optim` may also be "adamw_fuseline"."""

    optim: str = _optim()


@dataclass
class Seq2SeqTrainingArguments(_FuselineOptimizer, transformers.Seq2SeqTrainingArguments):
    """`transformers.Seq2SeqTrainingArguments`; `optim` may also be "adamw_fuseline"."""

    optim: str = _optim()
