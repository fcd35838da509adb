"""The models whose quantized latency is compared: of real size, with weights of a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MODELS", "Source", "inputs_for", "source"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Source:
    """An exported float model, and what a peer has to be told about it."""

    name: str
    path: Path
    family: str
    heads: int
    hidden: int
    build: Callable[[], Any]


def _bert(layers: int, hidden: int, heads: int) -> Any:
    import transformers as hf

    config = hf.BertConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
    )
    return hf.BertForSequenceClassification(config)  # type: ignore[no-untyped-call]


def _distilbert() -> Any:
    import transformers as hf

    return hf.DistilBertForSequenceClassification(hf.DistilBertConfig())


def _vit() -> Any:
    import transformers as hf

    return hf.ViTForImageClassification(hf.ViTConfig())


MODELS: dict[str, tuple[Callable[[], Any], str, int, int]] = {
    # builder, model type, heads, hidden size
    "bert": (lambda: _bert(12, 768, 12), "bert", 12, 768),
    "minilm": (lambda: _bert(6, 384, 12), "bert", 12, 384),
    "distilbert": (_distilbert, "bert", 12, 768),
    "vit": (_vit, "vit", 12, 768),
}


def source(name: str, folder: Path) -> Source:
    """Exported once into the folder."""
    builder, family, heads, hidden = MODELS[name]

    def build() -> Any:
        import torch

        torch.manual_seed(0)
        model = builder()
        with torch.no_grad():
            for parameter in model.parameters():
                # Fresh biases are zero and fresh scales one; real ones are neither.
                parameter.add_(torch.randn(parameter.shape) * 0.02)
        return model

    path = folder / f"{name}.onnx"
    if not path.exists():
        from fuseline.engine.pipeline import Pipeline
        from fuseline.exporters import export
        from fuseline.passes.cleanup.remove_unused import RemoveUnused
        from fuseline.passes.folding.fold_constants import FoldConstants

        # A parameter to train is no constant, and stays behind its Transpose, where others find no weight.
        model = build().eval().requires_grad_(False)
        task = "image-classification" if name == "vit" else "text-classification"
        exported = export(model, task=task, check=False)
        Pipeline.of(FoldConstants(), RemoveUnused()).run(exported).model.save(path)
    return Source(name, path, family, heads, hidden, build)


def inputs_for(case: Source, batch: int, length: int) -> dict[str, Array]:
    chance = np.random.default_rng(0)
    if case.name == "vit":
        return {"pixel_values": chance.normal(size=(batch, 3, 224, 224)).astype(np.float32)}
    ids = chance.integers(5, 20_000, (batch, length)).astype(np.int64)
    mask = np.ones_like(ids)
    made = {"input_ids": ids, "attention_mask": mask}
    return made if case.name == "distilbert" else {**made, "token_type_ids": np.zeros_like(ids)}
