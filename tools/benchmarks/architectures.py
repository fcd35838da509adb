"""Exported transformers models for the inference benchmarks: the zoo, and some of realistic width."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.model import Model

__all__ = ["WIDE", "Case", "wide_case", "zoo_case", "zoo_names"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """An exported model, inputs for it, and what a rival has to be told about it."""

    name: str
    path: Path
    inputs: dict[str, Array]
    heads: int
    hidden: int
    family: str
    config: dict[str, Any] = field(default_factory=dict)

    def model(self) -> Model:
        return Model.load(self.path)


WIDE: dict[str, tuple[str, dict[str, Any], int, int]] = {
    # zoo name, settings, batch, length
    "bert": ("bert", {"max_position_embeddings": 512}, 1, 128),
    "roberta": ("roberta", {"max_position_embeddings": 514}, 1, 128),
    "distilbert": ("distilbert", {"max_position_embeddings": 512}, 1, 128),
    "gpt2": ("gpt2", {"n_positions": 512}, 1, 128),
    "llama": ("llama", {"num_key_value_heads": 4}, 1, 128),
    "t5-encoder": ("t5-encoder", {}, 1, 128),
    "vit": ("vit", {"image_size": 224, "patch_size": 16}, 1, 128),
    "whisper-encoder": ("whisper-encoder", {}, 1, 128),
}
_WIDTH = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "vocab_size": 8192,
}
_NAMES_OF_WIDTH = {
    # The zoo's own settings use the common names, which DistilBERT maps onto its own: both must agree.
    "distilbert": {**_WIDTH, "dim": 768, "n_heads": 12, "hidden_dim": 3072, "n_layers": 4},
    "gpt2": {"n_embd": 768, "n_head": 12, "n_layer": 4, "vocab_size": 8192},
    "vit": {k: v for k, v in _WIDTH.items() if k != "vocab_size"},
}


def _facts(family: str, heads: int, hidden: int) -> dict[str, Any]:
    config = {"model_type": family, "num_attention_heads": heads, "hidden_size": hidden}
    return {"heads": heads, "hidden": hidden, "family": family, "config": config}


_THIRD_PARTY = {
    # the file's stem: a name, and what a rival has to be told
    "paraphrase-MiniLM-L3-v2": ("third-party-minilm", _facts("bert", 12, 384)),
    "ch_PP-OCRv4_rec_infer": ("third-party-ocr", _facts("vit", 8, 120)),
    "yolo11n": ("third-party-yolo11", _facts("vit", 2, 128)),
}


def zoo_names() -> list[str]:
    from fuseline.tools.campaigns import zoo

    return zoo.names()


def zoo_case(name: str, attention: str, folder: Path) -> Case:
    """A tiny model of the zoo, exported once into `folder`."""
    from fuseline.tools.campaigns import zoo

    if attention not in zoo.attentions(name):
        raise ValueError(f"transformers has no {attention} attention for {name}")
    case = _case(f"{name}-{attention}", lambda: zoo.build(name, attention=attention), folder, 2, 12)
    return replace(case, config=json.loads(zoo.config(name).to_json_string(use_diff=False)))


def third_party_cases() -> list[Case]:
    """Transformer models that others exported and published in packages."""
    from fuseline.engine.inputs import generate
    from fuseline.tools.campaigns.third_party import models

    cases = []
    for path in models():
        if path.stem in _THIRD_PARTY:
            name, facts = _THIRD_PARTY[path.stem]
            cases.append(Case(name, path, generate(Model.load(path), seed=0), **facts))
    return cases


def wide_case(name: str, folder: Path) -> Case:
    """Four layers of realistic width, exported once into `folder`."""
    zoo_name, settings, batch, length = WIDE[name]
    return _case(f"wide-{name}", lambda: _wide_model(zoo_name, settings), folder, batch, length)


def _wide_model(name: str, settings: dict[str, Any]) -> Any:
    import transformers as hf

    from fuseline.tools.campaigns import zoo

    if name == "t5-encoder":
        config = hf.T5Config(
            vocab_size=8192, d_model=768, d_kv=64, d_ff=3072, num_layers=4, num_heads=12, use_cache=False
        )
        return hf.T5EncoderModel(config)
    if name == "whisper-encoder":
        whisper = hf.WhisperConfig(
            d_model=768,
            encoder_layers=4,
            encoder_attention_heads=12,
            encoder_ffn_dim=3072,
            decoder_layers=1,
            max_source_positions=500,
            vocab_size=100,
            pad_token_id=0,
        )
        return hf.WhisperModel(whisper).encoder
    return zoo.build(name, attention="sdpa", **_NAMES_OF_WIDTH.get(name, _WIDTH), **settings)


def _case(name: str, build: Any, folder: Path, batch: int, length: int) -> Case:
    """Export unless the folder has it; weights are drawn anew, since fresh ones (1 and 0) fold away."""
    import torch

    from fuseline.tools.benchmarks.called import export_called

    path, about = folder / f"{name}.onnx", folder / f"{name}.json"
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = build().eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
        export_called(model).save(path)
        config = getattr(model.config, "text_config", None) or model.config
        about.write_text(json.dumps(_describe(config)))
    facts = json.loads(about.read_text())
    return Case(name, path, _inputs(Model.load(path), batch, length), **facts)


def _describe(config: Any) -> dict[str, Any]:
    heads = next(
        (
            getattr(config, n)
            for n in ("num_attention_heads", "n_head", "n_heads", "num_heads")
            if hasattr(config, n)
        ),
        1,
    )
    hidden = next(
        (getattr(config, n) for n in ("hidden_size", "n_embd", "dim", "d_model") if hasattr(config, n)), 1
    )
    return {
        "heads": heads if isinstance(heads, int) else heads[0],
        "hidden": hidden if isinstance(hidden, int) else 1,
        "family": config.model_type,
    }


def _inputs(model: Model, batch: int, length: int) -> dict[str, Array]:
    """Random inputs: ids below the smallest vocabulary, a mask with some padding."""
    random = np.random.default_rng(0)
    axes = {"samples": 160 * length + 37, "target_sequence": length // 2 + 2}
    made: dict[str, Array] = {}
    for value in model.graph.inputs:
        sizes = [
            d if isinstance(d, int) else batch if i == 0 else axes.get(str(d.value), length)
            for i, d in enumerate(value.shape or ())
        ]
        name = str(value.name)
        if value.dtype is not None and value.dtype.is_floating_point():
            made[name] = random.standard_normal(sizes).astype(np.float32)
        elif "mask" in name:
            made[name] = np.ones(sizes, value.dtype.numpy() if value.dtype else np.int64)
            made[name][-1, -max(1, length // 8) :] = 0
        elif "type" in name:
            made[name] = np.zeros(sizes, np.int64)
        elif "position" in name:
            made[name] = np.broadcast_to(np.arange(sizes[-1]), sizes).astype(np.int64)
        else:
            made[name] = random.integers(3, 90, sizes).astype(np.int64)
    return made
