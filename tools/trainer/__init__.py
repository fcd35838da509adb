"""The Trainer: `transformers.Trainer` with ONNX Runtime underneath."""

from __future__ import annotations

from fuseline.tools.trainer.arguments import Seq2SeqTrainingArguments, TrainingArguments
from fuseline.tools.trainer.bridge import Bridge, attach
from fuseline.tools.trainer.cache import CompileCache
from fuseline.tools.trainer.collators import BucketingCollator, PackingCollator
from fuseline.tools.trainer.compiler import Compiler, Settings
from fuseline.tools.trainer.sharded import ShardedOptimizer
from fuseline.tools.trainer.trainer import Seq2SeqTrainer, Trainer

__all__ = [
    "Bridge",
    "BucketingCollator",
    "CompileCache",
    "Compiler",
    "PackingCollator",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "Settings",
    "ShardedOptimizer",
    "Trainer",
    "TrainingArguments",
    "attach",
]
