"""Encoders with decoders."""

from __future__ import annotations

from typing import Any

from fuseline.tools.campaigns.architectures.entries import TRANSLATION, Entry, Settings

__all__ = ["SEQ2SEQ"]

_T5: Settings = {
    "vocab_size": 99,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def _seq2seq(model: str, settings: Settings = TRANSLATION, **extra: Any) -> Entry:
    return Entry(f"{model}ForConditionalGeneration", f"{model}Config", {**settings, **extra})


SEQ2SEQ: dict[str, Entry] = {
    "t5": _seq2seq("T5", _T5),
    "mt5": _seq2seq("MT5", _T5),
    "bart": _seq2seq("Bart"),
    "mbart": _seq2seq("MBart"),
    "pegasus": _seq2seq("Pegasus"),
    "marian": Entry("MarianMTModel", "MarianConfig", TRANSLATION),
    "whisper": _seq2seq(
        "Whisper",
        num_mel_bins=16,
        max_source_positions=30,
        max_target_positions=128,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    "t5-token": Entry("T5ForTokenClassification", "T5Config", _T5),
    "umt5": _seq2seq("UMT5", _T5),
    "blenderbot": _seq2seq("Blenderbot"),
    "blenderbot-small": _seq2seq("BlenderbotSmall"),
    "m2m100": _seq2seq("M2M100"),
    "plbart": _seq2seq("PLBart"),
}
