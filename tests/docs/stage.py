"""What documents take for granted: a reader's own model, data and names, here as small as they can be.

Everything is made once, also where several processes run the tests, and copied into the folder of each
document that asks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from filelock import FileLock

import fuseline
from fuseline.tools.campaigns import zoo

__all__ = ["FILES", "NAMES", "comments", "set_up", "tokenizer"]

_WORDS = [f"word{i}" for i in range(7)]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, **{word: i + 5 for i, word in enumerate(_WORDS)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _model(path: Path) -> None:
    fuseline.export(zoo.build("bert"), task="text-classification").save(path)


def _model_folder(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        zoo.build(name).save_pretrained(path)
        tokenizer().save_pretrained(path)

    return make


def comments(path: Path, count: int = 48) -> None:
    draw = np.random.default_rng(0)
    rows = [f"{' '.join(draw.choice(_WORDS, 6))},{i % 2}" for i in range(count)]
    path.write_text("\n".join(["text,is_offensive", *rows]) + "\n")


def _inputs(path: Path) -> None:
    batch = zoo.batch(zoo.build("bert"), batch=32, seq=8, seed=1)
    np.savez(path, **{name: tensor.numpy() for name, tensor in batch.items()})


def _torch_model() -> Any:
    return zoo.build("bert", attention="sdpa")


def _batch() -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in zoo.batch(zoo.build("bert"), batch=4, seq=8).items()}


def _data() -> list[dict[str, Any]]:
    batch = zoo.batch(zoo.build("bert"), batch=24, seq=8, seed=2)
    return [{name: tensor[i] for name, tensor in batch.items()} for i in range(24)]


FILES: dict[str, Callable[[Path], None]] = {
    "model.onnx": _model,
    "my-model": _model_folder("bert"),
    "my-llama": _model_folder("llama"),
    "comments.csv": comments,
    "c.npz": _inputs,
    "e.npz": _inputs,
}
NAMES: dict[str, Callable[[], Any]] = {
    "torch_model": _torch_model,
    "batch": _batch,
    "data": _data,
    "torch": lambda: torch,
}


def set_up(folder: Path, kept: Path, text: str) -> dict[str, Any]:
    """Put what the text names into the folder; gives the Python names."""
    kept.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        if name in text:
            original = kept / name
            with FileLock(kept / "lock"):
                if not original.exists():
                    make(original)
            (shutil.copytree if original.is_dir() else shutil.copy)(original, folder / name)
    # `make demo` has been run.
    if "demo-output/model.onnx" in text:
        (folder / "demo-output").mkdir()
        shutil.copy(folder / "model.onnx", folder / "demo-output")
    return {name: make() for name, make in NAMES.items() if name in text}
