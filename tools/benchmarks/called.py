"""Encoders and encoder-decoders as plain modules: the decoder's ids are an input, not made from labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fuseline.engine.model import Model
from fuseline.exporters.export import export

__all__ = ["export_called"]

_TEXT = {0: "batch", 1: "sequence"}
_TARGET = {0: "batch", 1: "target_sequence"}


class _Translator(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        made: Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids
        ).logits
        return made


class _Transcriber(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        made: Tensor = self.model(input_features=input_features, decoder_input_ids=decoder_input_ids).logits
        return made


class _Listener(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: Tensor) -> Tensor:
        made: Tensor = self.model(input_features).last_hidden_state
        return made


def export_called(model: Any) -> Model:
    """Export any model of the benchmarks for inference."""
    name, config = type(model).__name__, model.config
    if name == "WhisperEncoder":
        made = export(_Listener(model), example_inputs={"input_features": _sound(config)}, check=False)
    elif name == "WhisperForConditionalGeneration":
        made = export(
            _Transcriber(model),
            example_inputs={"input_features": _sound(config), "decoder_input_ids": _ids(5)},
            dynamic={"input_features": {0: "batch"}, "decoder_input_ids": _TARGET},
            check=False,
        )
    elif name.endswith(("ForConditionalGeneration", "MTModel")):
        made = export(
            _Translator(model),
            example_inputs={
                "input_ids": _ids(7),
                "attention_mask": torch.ones(3, 7, dtype=torch.int64),
                "decoder_input_ids": _ids(5),
            },
            dynamic={"input_ids": _TEXT, "attention_mask": _TEXT, "decoder_input_ids": _TARGET},
            check=False,
        )
    else:
        made = export(model, check=False)
    return made


def _ids(length: int) -> Tensor:
    return torch.randint(3, 90, (3, length))


def _sound(config: Any) -> Tensor:
    return torch.randn(3, config.num_mel_bins, 2 * config.max_source_positions)
