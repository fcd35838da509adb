"""The trainers of `bench-finetune`, taking turns: the stock one in all its ways, and ours."""

from __future__ import annotations

import random
import tempfile
from statistics import mean, quantiles
from typing import Any

import transformers

from fuseline.tools.benchmarks.finetune_cases import CASES, FinetuneCase, tokenizer
from fuseline.tools.benchmarks.relay import Relay
from fuseline.tools.measuring import resident
from fuseline.tools.trainer import Trainer, TrainingArguments

__all__ = ["CONTENDERS", "OURS", "SLOW_TO_START", "accuracies", "memory", "race", "ratio"]

CONTENDERS: dict[str, dict[str, Any]] = {
    "fuseline": {"whole_step": True},
    "fuseline bf16": {"whole_step": True, "bf16": True},
    "eager": {},
    "sdpa": {},
    "compile": {"torch_compile": True},
    "eager bf16": {"bf16": True},
    "sdpa bf16": {"bf16": True},
    "compile bf16": {"torch_compile": True, "bf16": True},
    "onnxruntime": {"pipeline": "training-stock"},
    "fuseline+torch": {},
}
"""Name → what is asked for; the stock Trainer unless it is ours, or ONNX Runtime's operators in ours."""
OURS = ("fuseline", "fuseline+torch", "onnxruntime")
"""With the optimizer in the graph; with torch's; ONNX Runtime's operators and torch's optimizer."""
SLOW_TO_START = ("compile", "onnxruntime", "fuseline+torch")
"""Compiled anew for new lengths, or exported once more: minutes before the first step of each case."""
_TURN = 2
_DRAWS = 2000


def race(case: FinetuneCase, padding: str, names: list[str], steps: int) -> dict[str, dict[str, Any]]:
    """Seconds and CPU seconds per example of each, in turns on the same batches; the losses at the end."""
    relay = Relay(_TURN)
    legs = {name: relay.leg(name) for name in names}
    # Not counted; torch compiles for the first lengths that it sees, and then for any.
    warm = _TURN * (2 if any(name.startswith("compile") for name in names) else 1)
    data = case.data((steps + warm) * case.batch)
    with tempfile.TemporaryDirectory(prefix="fuseline-finetune-") as folder:
        made = {n: _trainer(n, case, padding, data, folder, steps + warm, [legs[n]]) for n in names}
        for name in names:
            if name.split()[0] in OURS:
                made[name].compile(made[name].data_collator([dict(e) for e in data[: case.batch]]))
        relay.run({name: trainer.train for name, trainer in made.items()})
    found = {}
    for name, leg in legs.items():
        seconds, cpu = leg.seconds[warm:], leg.cpu[warm:]
        found[name] = {
            "seconds": [round(s / case.batch, 6) for s in seconds],
            "cpu": round(sum(cpu) / len(cpu) / case.batch, 6),
            "loss": round(float(made[name].state.log_history[-1]["train_loss"]), 4),
        }
    return found


def memory(case: FinetuneCase, padding: str, name: str) -> float:
    """What two steps add to this process, in MB: for a process of its own."""
    data = case.data(2 * case.batch)
    with tempfile.TemporaryDirectory(prefix="fuseline-finetune-") as folder:
        trainer = _trainer(name, case, padding, data, folder, 2, [])
        before = resident.held()
        resident.forget_peak()
        trainer.train()
        return (resident.peak() - before) / 2**20


def accuracies(names: list[str], examples: int, held_out: int, seed: int) -> dict[str, float]:
    """An epoch of MiniLM each, with dropout by the seed, judged on comments that none of them saw."""
    case = CASES[0]
    data = case.data(examples + held_out)
    found = {}
    with tempfile.TemporaryDirectory(prefix="fuseline-finetune-") as folder:
        for name in names:
            trainer = _trainer(name, case, "longest", data[held_out:], folder, -1, [], seed)
            trainer.train()
            trainer.compute_metrics = _accuracy
            judged = sorted(data[:held_out], key=lambda e: len(e["input_ids"]))
            found[name] = float(trainer.evaluate(judged)["eval_accuracy"])
    return found


def _trainer(
    name: str,
    case: FinetuneCase,
    padding: str,
    data: list[Any],
    folder: str,
    steps: int,
    callbacks: list[Any],
    seed: int = 1,
) -> Any:
    asked = dict(CONTENDERS[name])
    ours = name.split()[0] in OURS
    own: dict[str, Any] = {key: asked.pop(key) for key in ("whole_step", "pipeline") if key in asked}
    if ours:
        own["fallback"] = "error"
    transformers.set_seed(seed)
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=case.batch,
        per_device_eval_batch_size=64,
        max_steps=steps,
        num_train_epochs=1,
        learning_rate=5e-5,
        warmup_steps=10,
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length" if padding == "grouped" else "random",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=True,
        seed=seed,
        **asked,
    )
    kind: type[Any] = Trainer if ours else transformers.Trainer
    trainer = kind(
        case.build(_attention(case, name)),
        args,
        train_dataset=data,
        data_collator=case.collate(padding),
        processing_class=tokenizer() if case.collator else None,
        callbacks=callbacks,
        **own,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def _attention(case: FinetuneCase, name: str) -> str:
    sdpa = getattr(getattr(transformers, case.model), "_supports_sdpa", not case.config)
    return "eager" if name.startswith("eager") or not sdpa else "sdpa"


def _accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def ratio(theirs: list[float], ours: list[float]) -> tuple[float, float, float]:
    """How many times as fast ours is over all batches, and the interval that holds it in nine draws of ten.

    Batches differ in length, and both trained on the same ones: what is drawn are batches.
    """
    draw, same = random.Random(0), len(theirs) == len(ours)
    drawn = []
    for _ in range(_DRAWS):
        first = draw.choices(range(len(theirs)), k=len(theirs))
        second = first if same else draw.choices(range(len(ours)), k=len(ours))
        drawn.append(mean(theirs[i] for i in first) / mean(ours[i] for i in second))
    cuts = quantiles(drawn, n=20)
    found = mean(theirs) / mean(ours)
    return found, min(found, cuts[0]), max(found, cuts[-1])
