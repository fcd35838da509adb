"""How much of what few bits cost is won back by training on the grid, against equally long training in float.

    python -m fuseline.tools.benchmarks.quantize_aware [--bits 5] [--steps N] [--texts N]

MiniLM, fine-tuned on real comments, goes on training for the same steps twice: in float (the control, which
is quantized afterwards) and on the grid. Accuracy is that of the integer graphs on comments never seen. Exit
1 when the drop is too small to say anything, less than half of it is won back, or the integer graph predicts
otherwise than the model that was trained.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.classifier import FOLDER, Classifier, classifier, settings, texts
from fuseline.tools.benchmarks.quantize_accuracy import batches
from fuseline.tools.console import console
from fuseline.tools.quantizer.data import Batches
from fuseline.tools.quantizer.metrics import Predict, main_output, predictor

__all__ = ["main"]

DROP, RECOVERED, AGREEMENT = 2.0, 0.5, 0.995


def predictions(predict: Predict, test: Batches) -> Any:
    return np.concatenate([main_output(predict(b)).argmax(-1) for b in test.inputs()])


def trained(files: Classifier, options: argparse.Namespace, folder: str, *, bits: int | None) -> Any:
    """A trainer that has gone on from the fine-tuned model."""
    import transformers

    from fuseline.tools.trainer import Trainer

    transformers.set_seed(11)
    tokenizer = transformers.AutoTokenizer.from_pretrained(files.weights)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(files.weights)
    trainer = Trainer(
        model,
        settings(folder, max_steps=options.steps, seed=11),
        train_dataset=texts(tokenizer).training,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        fallback="error",
        quantize=bits,
    )
    trainer.train()
    return trainer


def rounded(model: Any, files: Classifier, options: argparse.Namespace, folder: str) -> Path:
    """The integer graph of a float model: the first scales of the grid, and no training on it."""
    import transformers

    from fuseline.tools.trainer import Trainer

    tokenizer = transformers.AutoTokenizer.from_pretrained(files.weights)
    trainer = Trainer(
        model,
        settings(folder),
        train_dataset=texts(tokenizer).training,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        quantize=options.bits,
    )
    return trainer.save_onnx(Path(folder) / "rounded.onnx")


def compare(files: Classifier, options: argparse.Namespace, folder: str) -> dict[str, float]:
    test = batches(files.test, options.texts)
    labels = np.concatenate([b.labels for b in test if b.labels is not None])

    def accuracy(found: Any) -> float:
        return float((found == labels).mean())

    aware = trained(files, options, folder, bits=options.bits)
    integers = predictions(predictor(Model.load(aware.save_onnx(Path(folder) / "aware.onnx"))), test)
    grids = predictions(predictor(aware.bridge.inference()), test)
    control = trained(files, options, folder, bits=None)
    floats = predictions(predictor(Model.load(control.save_onnx(Path(folder) / "float.onnx"))), test)
    control.bridge.detach()
    after = predictions(predictor(Model.load(rounded(control.model, files, options, folder))), test)
    found = {"float": accuracy(floats), "rounded": accuracy(after), "aware": accuracy(integers)}
    drop = found["float"] - found["rounded"]
    recovered = (found["aware"] - found["rounded"]) / drop if drop > 0 else float("nan")
    return found | {"recovered": recovered, "agreement": float((integers == grids).mean())}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuseline-aware-") as folder:
        found = compare(classifier(options.folder), options, folder)
    points = 100 * (found["float"] - found["rounded"])
    console.print(
        f"{options.bits} bits, {options.steps} steps: float {found['float']:.2%}, rounded afterwards "
        f"{found['rounded']:.2%} ({-points:+.2f} points), trained on the grid {found['aware']:.2%}: "
        f"{found['recovered']:.0%} won back; the integer graph predicts {found['agreement']:.2%} alike"
    )
    console.print(f"bars: a drop of {DROP} points, {RECOVERED:.0%} won back, {AGREEMENT:.1%} alike")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    kept = points >= DROP and found["recovered"] >= RECOVERED and found["agreement"] >= AGREEMENT
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
