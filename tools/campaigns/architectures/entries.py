"""An architecture of the zoo, and the settings that several of them share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["BASE", "ENCODER", "IMAGES", "TRANSLATION", "Entry", "Settings", "classifier"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One architecture: its transformers classes and the settings that make it tiny."""

    model: str
    config: str
    settings: Settings = field(default_factory=dict)


BASE: Settings = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
ENCODER: Settings = {**BASE, "pad_token_id": 0, "type_vocab_size": 2}
TRANSLATION: Settings = {
    "vocab_size": 99,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
IMAGES: Settings = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
}


def classifier(model: str, settings: Settings = ENCODER, **extra: Any) -> Entry:
    return Entry(f"{model}ForSequenceClassification", f"{model}Config", {**settings, **extra})
