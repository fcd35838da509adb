"""Fine-tuning MiniLM on real comments: the stock Trainer and ours, taking turns, accuracy and time compared.

    python -m fuseline.tools.benchmarks.finetune [--examples N] [--held-out N] [--epochs X] [--only NAMES]

All train the same model with its own dropout on the same batches in the same order, in one process, some
steps at a time. The stock Trainer has its defaults: SDPA attention and torch's fused AdamW. Exit 1 when the
accuracy of one of ours on the comments held out differs from the stock one's by more than half a point.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from statistics import median
from typing import Any

import torch
import transformers

from fuseline.tools.benchmarks.relay import Leg, Relay
from fuseline.tools.console import console, print_json
from fuseline.tools.demo import minilm, offensive_texts
from fuseline.tools.trainer import Trainer, TrainingArguments
from fuseline.tools.trainer.text_data import balanced, encode, read_texts

__all__ = ["main"]

TURN = 5
BATCH = 16
POINTS = 0.5
STOCK = "stock"
_OURS: dict[str, dict[str, Any]] = {
    "fuseline": {"optim": "adamw_fuseline"},
    "whole step": {"whole_step": True},
}


def build(name: str, parts: dict[str, Any], leg: Leg, folder: str, pipeline: str) -> Any:
    extra = dict(_OURS.get(name, {}))
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        num_train_epochs=parts["epochs"],
        learning_rate=5e-5,
        warmup_steps=10,
        optim=extra.pop("optim", "adamw_torch_fused"),
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        seed=1,
    )
    kind: type[Any] = transformers.Trainer if name == STOCK else Trainer
    if name != STOCK:
        extra |= {"pipeline": pipeline, "fallback": "error"}
    trainer = kind(
        copy.deepcopy(parts["model"]),
        args,
        train_dataset=parts["training"],
        eval_dataset=parts["held_out"],
        data_collator=transformers.DataCollatorWithPadding(parts["tokenizer"]),
        compute_metrics=_accuracy,
        callbacks=[leg],
        **extra,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def load(examples: int, held_out: int, epochs: float) -> dict[str, Any]:
    transformers.set_seed(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    texts = balanced(read_texts(offensive_texts(), label="is_offensive"), examples + held_out, seed=1)
    encoded = encode(texts, tokenizer, max_length=64)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=2)
    return {
        "model": model,
        "tokenizer": tokenizer,
        # Alike in length, so that little is padding; the order changes no accuracy.
        "held_out": sorted(encoded[:held_out], key=lambda e: len(e["input_ids"])),
        "training": encoded[held_out:],
        "epochs": epochs,
    }


def race(parts: dict[str, Any], names: list[str], pipeline: str) -> dict[str, dict[str, float]]:
    relay = Relay(TURN)
    legs = {name: relay.leg(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="fuseline-finetune-") as folder:
        trainers = {name: build(name, parts, legs[name], folder, pipeline) for name in names}
        for name in _OURS.keys() & trainers.keys():
            _warm_up(trainers[name], parts["training"][:BATCH])
        relay.run({name: trainer.train for name, trainer in trainers.items()})
        accuracies = {name: trainer.evaluate()["eval_accuracy"] for name, trainer in trainers.items()}
    steps = -(-len(parts["training"]) // BATCH)
    return {
        name: {
            "accuracy": accuracies[name],
            "seconds_per_epoch": sum(leg.seconds) / len(leg.seconds) * steps,
            "median_step": median(leg.seconds),
        }
        for name, leg in legs.items()
    }


def _warm_up(trainer: Any, examples: list[dict[str, Any]]) -> None:
    """Compile before the clock runs: exporting happens once per model, not once per epoch."""
    trainer.compile(trainer.data_collator([dict(e) for e in examples]))


def _accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def compared(results: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The results with the ratio of speeds and the difference in points to the stock Trainer."""
    stock = results[STOCK]
    return {
        name: result
        | {
            "speed": stock["seconds_per_epoch"] / result["seconds_per_epoch"],
            "points": 100 * (result["accuracy"] - stock["accuracy"]),
        }
        for name, result in results.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--held-out", type=int, default=4000)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pipeline", default="training")
    parser.add_argument("--only", default=",".join(_OURS), help="which of ours, comma-separated")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = load(options.examples, options.held_out, options.epochs)
    results = compared(race(parts, [STOCK, *options.only.split(",")], options.pipeline))
    if options.json:
        print_json({"threads": options.threads, "examples": len(parts["training"]), **results})
    else:
        for name, result in results.items():
            console.print(
                f"{name:11} accuracy {result['accuracy']:.2%} ({result['points']:+.2f} points), "
                f"{result['seconds_per_epoch']:.1f} s per epoch of {len(parts['training'])} comments "
                f"({result['speed']:.2f}× the stock speed), median step {result['median_step'] * 1e3:.0f} ms"
            )
    return int(any(abs(r["points"]) > POINTS for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
