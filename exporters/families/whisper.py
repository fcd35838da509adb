"""Whisper: the encoder takes exactly thirty seconds, whatever was said in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family
from fuseline.exporters.inputs import Input
from fuseline.exporters.tasks import Task

__all__ = ["Whisper"]


@register_family
class Whisper(Family):
    model_types = ("whisper",)

    def inputs(self, model: nn.Module, task: Task, *, train: bool) -> tuple[Input, ...]:
        # The first convolutions halve the number of frames once.
        config: Any = model.config
        frames = 2 * int(config.max_source_positions)
        return tuple(
            replace(item, axes=tuple(frames if axis == "frames" else axis for axis in item.axes))
            for item in super().inputs(model, task, train=train)
        )
