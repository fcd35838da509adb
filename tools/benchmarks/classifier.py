"""MiniLM fine-tuned on real comments, once, as the model whose accuracy quantization has to keep.

    python -m fuseline.tools.benchmarks.classifier [--folder build/quantize]

The folder then holds `minilm.onnx`, `calibration.npz` (texts the model was trained on), `validation.npz` and
`test.npz` (texts it has never seen, with their labels: the one to choose by, the other to judge by). Texts of
like length stand together, so that little is padding.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fuseline.tools.console import console
from fuseline.tools.demo import minilm, offensive_texts

if TYPE_CHECKING:
    from fuseline.tools.trainer import TrainingArguments

__all__ = ["FOLDER", "VALIDATION", "Classifier", "Texts", "classifier", "settings", "texts"]

FOLDER = Path("build/quantize")
LENGTH = 64
TRAINING, TEST, VALIDATION, CALIBRATION = 12_000, 10_240, 4_096, 512
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Classifier:
    """Where the exported model, its data and its torch weights are."""

    model: Path
    calibration: Path
    validation: Path
    test: Path
    weights: Path


def classifier(folder: Path = FOLDER) -> Classifier:
    """The fine-tuned model, made on first use (some minutes)."""
    calibration, validation, test = (folder / f"{n}.npz" for n in ("calibration", "validation", "test"))
    made = Classifier(folder / "minilm.onnx", calibration, validation, test, folder / "minilm")
    if not made.test.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(made)
    return made


class Texts(NamedTuple):
    """Encoded comments, none of them in two parts."""

    training: list[dict[str, Any]]
    validation: list[dict[str, Any]]
    test: list[dict[str, Any]]


def texts(tokenizer: Any) -> Texts:
    """Comments to train on, to choose by and to judge by; always the same ones."""
    from fuseline.tools.trainer.text_data import balanced, encode, read_texts

    count, seen = TEST + VALIDATION + TRAINING, TEST + VALIDATION
    chosen = balanced(read_texts(offensive_texts(), label="is_offensive"), count, seed=7)
    encoded = encode(chosen, tokenizer, max_length=LENGTH)
    return Texts(encoded[seen:], encoded[TEST:seen], encoded[:TEST])


def settings(folder: str, **changes: Any) -> TrainingArguments:
    """How the classifier is trained, and whatever is to be compared with it."""
    from fuseline.tools.trainer import TrainingArguments

    common: dict[str, Any] = {
        "per_device_train_batch_size": 16,
        "num_train_epochs": 1,
        "learning_rate": 5e-5,
        "warmup_steps": 50,
        "optim": "adamw_fuseline",
        "save_strategy": "no",
        "logging_steps": 100,
        "disable_tqdm": True,
        "report_to": [],
        "use_cpu": True,
        "seed": 7,
    }
    return TrainingArguments(output_dir=folder, **common | changes)


def _make(target: Classifier) -> None:
    import transformers

    from fuseline.exporters import export
    from fuseline.tools.trainer import Trainer

    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    chosen = texts(tokenizer)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=2)
    with tempfile.TemporaryDirectory(prefix="fuseline-classifier-") as folder:
        collator = transformers.DataCollatorWithPadding(tokenizer)
        Trainer(model, settings(folder), train_dataset=chosen.training, data_collator=collator).train()
    model.eval().save_pretrained(target.weights)
    tokenizer.save_pretrained(target.weights)
    export(model, task="text-classification").save(target.model)
    _save(target.calibration, chosen.training[:CALIBRATION])
    _save(target.validation, chosen.validation)
    _save(target.test, chosen.test)


def _save(path: Path, examples: list[dict[str, Any]]) -> None:
    """Columns of one length; the mask says what is padding."""
    rows = sorted(examples, key=lambda e: len(e["input_ids"]))
    length = len(rows[-1]["input_ids"])
    columns = [k for k in rows[0] if k != "labels"]
    arrays: dict[str, Array] = {
        key: np.array([e[key] + [0] * (length - len(e[key])) for e in rows], np.int64) for key in columns
    }
    np.savez_compressed(path, labels=np.array([e["labels"] for e in rows], np.int64), **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    console.print(f"{classifier(parser.parse_args().folder).model} is ready")
