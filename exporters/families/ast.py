"""Audio spectrogram transformer: a vision transformer over a spectrogram of fixed size."""

from __future__ import annotations

from typing import Any

from torch import nn

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family
from fuseline.exporters.inputs import Input
from fuseline.exporters.tasks import Task

__all__ = ["AudioSpectrogramTransformer"]


@register_family
class AudioSpectrogramTransformer(Family):
    model_types = ("audio-spectrogram-transformer",)

    def inputs(self, model: nn.Module, task: Task, *, train: bool) -> tuple[Input, ...]:
        config: Any = model.config
        spectrum = Input("input_values", ("batch", config.max_length, config.num_mel_bins), "normal")
        return (spectrum, *(task.labels if train else ()))
