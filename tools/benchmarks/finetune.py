"""Fine-tuning MiniLM on real comments: the stock Trainer and ours, taking turns, accuracy and time compared.

python -m fuseline.tools.benchmarks.finetune --examples 2000

Both train the same model on the same batches, with dropout, each in a thread of its own; a baton passes
between them every few steps, and only who holds it runs, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import copy
import threading
import time
from statistics import median
from typing import Any

import torch
import transformers

from fuseline.tools.console import console, print_json
from fuseline.tools.demo import minilm, offensive_texts
from fuseline.tools.trainer import Trainer, TrainingArguments
from fuseline.tools.trainer.text_data import balanced, encode, read_texts

TURN = 5
BATCH = 16


class Baton(transformers.TrainerCallback):
    """Lets one trainer run `TURN` steps and then waits for the other; keeps the seconds of each step."""

    def __init__(self, turns: threading.Condition, shared: dict[str, Any], name: str) -> None:
        self.turns, self.shared, self.name = turns, shared, name
        self.seconds: list[float] = []
        self._begin = 0.0

    def wait(self) -> None:
        with self.turns:
            self.turns.wait_for(lambda: self.shared["holder"] == self.name or len(self.shared["running"]) < 2)

    def pass_on(self, *, leave: bool = False) -> None:
        with self.turns:
            if leave:
                self.shared["running"].discard(self.name)
            others = self.shared["running"] - {self.name}
            if others:
                self.shared["holder"] = next(iter(others))
            self.turns.notify_all()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % TURN == 0:
            self.wait()
        self._begin = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._begin)
        if state.global_step % TURN == 0:
            self.pass_on()


def build(kind: type[Any], name: str, parts: dict[str, Any], baton: Baton, **extra: Any) -> Any:
    args = TrainingArguments(
        output_dir=f"demo-output/finetune-{name}",
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        num_train_epochs=parts["epochs"],
        learning_rate=5e-5,
        warmup_steps=10,
        optim=extra.pop("optim", "adamw_torch"),
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        seed=1,
    )
    trainer = kind(
        copy.deepcopy(parts["model"]),
        args,
        train_dataset=parts["training"],
        eval_dataset=parts["held_out"],
        data_collator=transformers.DataCollatorWithPadding(parts["tokenizer"]),
        compute_metrics=_accuracy,
        callbacks=[baton],
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
        "held_out": encoded[:held_out],
        "training": encoded[held_out:],
        "epochs": epochs,
    }


def race(parts: dict[str, Any], pipeline: str) -> dict[str, dict[str, float]]:
    turns, shared = threading.Condition(), {"holder": "stock", "running": {"stock", "fuseline"}}
    batons = {name: Baton(turns, shared, name) for name in ("stock", "fuseline")}
    trainers = {
        "stock": build(transformers.Trainer, "stock", parts, batons["stock"]),
        "fuseline": build(
            Trainer,
            "fuseline",
            parts,
            batons["fuseline"],
            pipeline=pipeline,
            fallback="error",
            optim="adamw_fuseline",
        ),
    }
    batch = trainers["fuseline"].data_collator([dict(e) for e in parts["training"][:4]])
    trainers["fuseline"].compile(batch)

    def run(name: str) -> None:
        batons[name].wait()
        try:
            trainers[name].train()
        finally:
            batons[name].pass_on(leave=True)

    threads = [threading.Thread(target=run, args=(name,)) for name in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = -(-len(parts["training"]) // BATCH)
    return {
        name: {
            "accuracy": trainer.evaluate()["eval_accuracy"],
            "seconds_per_epoch": sum(batons[name].seconds) / len(batons[name].seconds) * steps,
            "median_step": median(batons[name].seconds),
        }
        for name, trainer in trainers.items()
    }


def _accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--held-out", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pipeline", default="training")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = race(load(options.examples, options.held_out, options.epochs), options.pipeline)
    stock, mine = results["stock"], results["fuseline"]
    ratio = stock["seconds_per_epoch"] / mine["seconds_per_epoch"]
    points = 100 * (mine["accuracy"] - stock["accuracy"])
    if options.json:
        print_json({**results, "ratio": ratio, "points": points})
        return
    for name, result in results.items():
        console.print(
            f"{name:9} accuracy {result['accuracy']:.2%}, {result['seconds_per_epoch']:.1f} s per epoch of "
            f"{options.examples} comments, median step {result['median_step'] * 1e3:.0f} ms"
        )
    console.print(f"{ratio:.2f}× the stock Trainer's speed; {points:+.2f} points of accuracy")


if __name__ == "__main__":
    main()
