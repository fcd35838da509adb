"""fuseline: a compiler-style graph transformation engine for ONNX.

The names below are the public face; each is imported when first used, so that `import fuseline` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fuseline.engine.diff import diff
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.files import load
    from fuseline.engine.model import Model
    from fuseline.engine.observers import DumpDiffs, Expect, Timing, Verify
    from fuseline.engine.pass_ import Pass
    from fuseline.engine.patterns import Fusion, one_of
    from fuseline.engine.pipeline import Pipeline
    from fuseline.engine.training.step import TrainingStep
    from fuseline.exporters import export
    from fuseline.tools.quantizer import quantize
    from fuseline.tools.trainer import (
        BucketingCollator,
        PackingCollator,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        Trainer,
        TrainingArguments,
    )

_HOMES = {
    "BucketingCollator": "fuseline.tools.trainer",
    "DumpDiffs": "fuseline.engine.observers",
    "Expect": "fuseline.engine.observers",
    "FuselineError": "fuseline.engine.errors",
    "Fusion": "fuseline.engine.patterns",
    "Model": "fuseline.engine.model",
    "PackingCollator": "fuseline.tools.trainer",
    "Pass": "fuseline.engine.pass_",
    "Pipeline": "fuseline.engine.pipeline",
    "Seq2SeqTrainer": "fuseline.tools.trainer",
    "Seq2SeqTrainingArguments": "fuseline.tools.trainer",
    "Timing": "fuseline.engine.observers",
    "Trainer": "fuseline.tools.trainer",
    "TrainingArguments": "fuseline.tools.trainer",
    "TrainingStep": "fuseline.engine.training.step",
    "Verify": "fuseline.engine.observers",
    "diff": "fuseline.engine.diff",
    "export": "fuseline.exporters",
    "load": "fuseline.engine.files",
    "one_of": "fuseline.engine.patterns",
    "quantize": "fuseline.tools.quantizer",
}

__all__ = [
    "BucketingCollator",
    "DumpDiffs",
    "Expect",
    "FuselineError",
    "Fusion",
    "Model",
    "PackingCollator",
    "Pass",
    "Pipeline",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "Timing",
    "Trainer",
    "TrainingArguments",
    "TrainingStep",
    "Verify",
    "diff",
    "export",
    "load",
    "one_of",
    "quantize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fuseline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
