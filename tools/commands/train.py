"""`fuseline train`: fine-tune a transformers model on a table of texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fuseline.tools.commands.options import Json, Plugins
from fuseline.tools.console import console, print_json

if TYPE_CHECKING:
    from fuseline.tools.trainer.trainer import Trainer

__all__ = ["train_command"]

_TASKS = ("text-classification", "causal-lm")


def train_command(
    model: Annotated[Path, typer.Argument(help="A model folder with its tokenizer.")],
    data: Annotated[Path, typer.Argument(help="Texts: .csv, .tsv, .json or .jsonl.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for checkpoints and the model.")],
    task: Annotated[str, typer.Option(help=" or ".join(_TASKS))] = "text-classification",
    text: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    label: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    held_out: Annotated[float, typer.Option(help="Share of the texts kept for evaluation.")] = 0.1,
    max_length: Annotated[int, typer.Option(help="Longest text, in tokens.")] = 128,
    epochs: Annotated[float, typer.Option(help="Passes over the texts.")] = 1.0,
    max_steps: Annotated[int, typer.Option(help="Stop after so many steps (-1: by epochs).")] = -1,
    batch_size: Annotated[int, typer.Option(help="Texts per step.")] = 16,
    accumulation: Annotated[int, typer.Option(help="Batches per update.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Highest rate; it falls linearly.")] = 5e-5,
    warmup: Annotated[int, typer.Option(help="Steps in which the rate rises.")] = 0,
    optim: Annotated[str, typer.Option(help="Any optimizer name of transformers.")] = "adamw_fuseline",
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    whole_step: Annotated[bool, typer.Option(help="Run the optimizer inside the graph.")] = False,
    pipeline: Annotated[str, typer.Option(help="A ready pipeline, YAML, or text.")] = "training",
    plugin: Plugins = None,
    dump: Annotated[Path | None, typer.Option(help="Folder for the diff of every pass.")] = None,
    fallback: Annotated[str, typer.Option(help="What cannot be compiled: torch or error.")] = "torch",
    resume: Annotated[bool, typer.Option(help="Go on from the last complete checkpoint.")] = False,
    onnx: Annotated[bool, typer.Option(help="Write model.onnx besides the weights.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of order, dropout and new weights.")] = 42,
    as_json: Json = False,
) -> None:
    """Fine-tune a model on ONNX Runtime; the result loads in transformers and runs as ONNX."""
    from fuseline.engine.errors import FuselineError
    from fuseline.engine.outputs import check_output_folder

    if task not in _TASKS:
        raise FuselineError(f"--task is {' or '.join(_TASKS)}, not {task!r}")
    if precision not in ("fp32", "bf16", "fp16"):
        raise FuselineError(f"--precision is fp32, bf16 or fp16, not {precision!r}")
    if not (model / "config.json").is_file():
        raise FuselineError(f"{model} holds no config.json", hint="give a folder written by save_pretrained")
    for folder in (output, *([dump] if dump else [])):
        check_output_folder(folder)
    settings = {
        "output_dir": str(output),
        "num_train_epochs": epochs,
        "max_steps": max_steps,
        "per_device_train_batch_size": batch_size,
        "per_device_eval_batch_size": batch_size,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": learning_rate,
        "warmup_steps": warmup,
        "optim": optim,
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "seed": seed,
        "eval_strategy": "epoch" if held_out else "no",
        "disable_tqdm": as_json or not sys.stdout.isatty(),
        "dataloader_pin_memory": False,
        "report_to": [],
    }
    chosen = {
        "pipeline": pipeline,
        "plugins": tuple(plugin or ()),
        "dump_dir": dump,
        "fallback": fallback,
        "whole_step": whole_step,
    }
    trainer = _trainer(task, model, data, settings, chosen, text, label, held_out, max_length)
    result = trainer.train(resume_from_checkpoint=resume or None)
    metrics = trainer.evaluate() if held_out else {}
    trainer.save_model(str(output))
    if onnx and trainer.bridge.blocked is None:
        trainer.save_onnx(output / "model.onnx")
    summary = _summary(trainer, result, metrics, output, dump)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _trainer(
    task: str,
    folder: Path,
    data: Path,
    settings: dict[str, Any],
    chosen: dict[str, Any],
    text: str,
    label: str,
    held_out: float,
    max_length: int,
) -> Trainer:
    import transformers

    from fuseline.tools.trainer import Trainer, TrainingArguments
    from fuseline.tools.trainer.lines import PlainLines
    from fuseline.tools.trainer.text_data import encode, read_texts, split

    classify = task == "text-classification"
    texts = read_texts(data, text=text, label=label if classify else None)
    # The seed decides the weights of a new head, too.
    args = TrainingArguments(**settings)
    transformers.set_seed(args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if classify:
        names = dict(enumerate(texts.labels))
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder,
            id2label=names,
            label2id={v: k for k, v in names.items()},
            # A head for other labels makes room for a new one; transformers says so.
            ignore_mismatched_sizes=True,
        )
        collator: Any = transformers.DataCollatorWithPadding(tokenizer)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    parts = split(texts, held_out, args.seed)
    training, evaluation = (encode(p, tokenizer, max_length=max_length, labelled=classify) for p in parts)
    trainer = Trainer(
        model,
        args,
        train_dataset=training,
        eval_dataset=evaluation or None,
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=_accuracy if classify else None,
        **chosen,
    )
    if args.disable_tqdm:
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(PlainLines)
    return trainer


def _accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def _summary(
    trainer: Trainer, result: Any, metrics: dict[str, float], output: Path, dump: Path | None
) -> dict[str, Any]:
    steps = max(1, result.global_step)
    return {
        "model": type(trainer.bridge.model).__name__,
        "ran_on": "torch" if trainer.bridge.blocked else "ONNX Runtime",
        "blocked": trainer.bridge.blocked,
        "steps": result.global_step,
        "train_loss": round(result.training_loss, 6),
        **{k: round(v, 6) for k, v in metrics.items() if k in ("eval_loss", "eval_accuracy")},
        "seconds_per_step": round(result.metrics["train_runtime"] / steps, 4),
        "runs": dict(trainer.bridge.counts),
        "compiled": dict(trainer.compiler.counts),
        "output": str(output),
        "diffs": str(dump) if dump else None,
    }


def _print(summary: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("", "", title="training", title_justify="left", show_header=False)
    for key, value in summary.items():
        if value is not None:
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            table.add_row(key.replace("_", " "), shown)
    console.print(table)
