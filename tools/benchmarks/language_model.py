"""A small causal language model of characters, trained on real comments, to rank ways of rounding weights by.

    python -m fuseline.tools.benchmarks.language_model [--steps N] [--folder build/quantize]

It is trained once and cached. Then its weights go to 4 bits in every way there is, and the perplexity (per
character, on comments never seen) of each is printed, with that of ONNX Runtime's own rounding at the same
block size, and the time of a step of one character against float. Exit 1 when our rounding to nearest loses
more than ONNX Runtime's, or neither GPTQ nor scaling loses less than rounding to nearest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.quantize import environment
from fuseline.tools.console import console
from fuseline.tools.demo import offensive_texts
from fuseline.tools.quantizer.metrics import Predict, predictor

__all__ = ["STEPS", "fed", "input_names", "main", "perplexity", "trained"]

Array = npt.NDArray[Any]
FOLDER = Path("build/quantize")
LENGTH, WIDTH, LAYERS = 96, 256, 4
CHARACTERS = "\n abcdefghijklmnopqrstuvwxyz0123456789.,!?'\"-:;()/@#&*%$+="
TEST_ROWS, CALIBRATION_ROWS = 256, 64
STEPS = 1500


def characters(limit: int = 60_000) -> Array:
    """All comments as one row of numbers; what is not in the alphabet is left out."""
    from fuseline.tools.trainer.text_data import read_texts

    texts = read_texts(offensive_texts(), label="is_offensive").texts[:limit]
    places = {c: i for i, c in enumerate(CHARACTERS)}
    return np.array([places[c] for c in "\n".join(texts).lower() if c in places], np.int64)


def rows(stream: Array, count: int, seed: int) -> Array:
    chance = np.random.default_rng(seed)
    starts = chance.integers(0, len(stream) - LENGTH - 1, count)
    return np.stack([stream[s : s + LENGTH] for s in starts])


def trained(folder: Path, steps: int) -> tuple[Path, Array, Array]:
    """The exported model, rows to test with and rows to calibrate with."""
    stream = characters()
    cut = int(len(stream) * 0.9)
    path = folder / f"characters-{steps}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _train(path, stream[:cut], steps)
    return path, rows(stream[cut:], TEST_ROWS, 1), rows(stream[:cut], CALIBRATION_ROWS, 2)


def _train(path: Path, stream: Array, steps: int) -> None:
    import transformers

    from fuseline.exporters import export
    from fuseline.tools.trainer import Trainer, TrainingArguments

    transformers.set_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=len(CHARACTERS),
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    model: Any = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    examples = [{"input_ids": r, "labels": r} for r in rows(stream, 16 * steps, 3).tolist()]
    with tempfile.TemporaryDirectory(prefix="fuseline-characters-") as folder:
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=16,
            max_steps=steps,
            learning_rate=1e-3,
            warmup_steps=min(100, steps // 10),
            optim="adamw_fuseline",
            save_strategy="no",
            logging_steps=100,
            disable_tqdm=True,
            report_to=[],
            use_cpu=True,
            seed=3,
        )
        Trainer(model, args, train_dataset=examples).train()
    export(model.eval(), task="causal-lm").save(path)


def fed(ids: Array, names: Iterable[str]) -> dict[str, Array]:
    """What a model of these inputs is given for rows of characters."""
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": positions}
    return {name: known[name] for name in names}


def input_names(path: Path) -> list[str]:
    return [str(i.name) for i in Model.load(path).graph.inputs]


def perplexity(predict: Predict, test: Array, names: Iterable[str]) -> float:
    """Per character: two to the bits that each one costs."""
    loss, count = 0.0, 0
    for start in range(0, len(test), 16):
        ids = test[start : start + 16]
        logits = predict(fed(ids, names))["logits"][:, :-1].astype(np.float64)
        shifted = logits - logits.max(-1, keepdims=True)
        chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        loss -= float(np.take_along_axis(chances, ids[:, 1:, None], -1).sum())
        count += ids[:, 1:].size
    return float(np.exp(loss / count))


def variants(path: Path, calibration: Array, block: int) -> dict[str, Model]:
    from fuseline.tools.quantizer import quantize

    names = input_names(path)
    data = [fed(calibration[i : i + 8], names) for i in range(0, len(calibration), 8)]
    # Only what ONNX Runtime's quantizer takes: products, and no tables.
    config = {"mode": "weight-only", "operators": ["MatMul", "Gemm"]}
    made = {}
    for method in ("rtn", "gptq", "awq"):
        weights = {"bits": 4, "block": block, "method": method}
        made[method] = quantize(path, config={**config, "weights": weights}, calibration=data).model
    return made


def onnxruntime_rtn(path: Path, block: int, folder: Path, peers: Path) -> Path:
    """What ONNX Runtime's own quantizer of weights makes of the same graph."""
    from fuseline.engine.pipeline import Pipeline

    prepared, target = folder / "prepared.onnx", folder / "onnxruntime.onnx"
    Pipeline.resolve("quantize-prepare").run(Model.load(path)).model.save(prepared)
    program = Path(__file__).parent / "language_model_peer.py"
    python = environment("stock", peers).absolute()
    subprocess.run([python, program, prepared, target, str(block)], check=True, capture_output=True)
    return target


def step_seconds(predict: Predict, names: Iterable[str]) -> float:
    """One character: the products are of one row, as in decoding."""
    given = fed(np.zeros((1, 1), np.int64), names)
    samples = []
    for _ in range(60):
        began = time.perf_counter()
        predict(given)
        samples.append(time.perf_counter() - began)
    return median(samples[10:])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"))
    options = parser.parse_args()
    path, test, calibration = trained(options.folder, options.steps)
    names = input_names(path)
    running = predictor(Model.load(path))
    plain, seconds = perplexity(running, test, names), step_seconds(running, names)
    console.print(f"float: perplexity {plain:.4f} per character on {test.size:,} characters")
    with tempfile.TemporaryDirectory() as folder:
        peer = Model.load(onnxruntime_rtn(path, options.block, Path(folder), options.peers))
        losses = {}
        for name, model in {"onnxruntime rtn": peer, **variants(path, calibration, options.block)}.items():
            running = predictor(model)
            losses[name] = perplexity(running, test, names) - plain
            faster = seconds / step_seconds(running, names)
            console.print(
                f"{name}: {losses[name]:+.4f} ({losses[name] / plain:+.2%}), one step {faster:.2f}× as fast"
            )
    ours = losses["rtn"] <= losses["onnxruntime rtn"] and min(losses["gptq"], losses["awq"]) < losses["rtn"]
    return 0 if ours else 1


if __name__ == "__main__":
    sys.exit(main())
