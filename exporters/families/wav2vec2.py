"""Wav2Vec2 and its relatives: no SpecAugment (it masks on the host), CTC as a recursion in the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.exporters.ctc import ctc_loss
from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family
from fuseline.exporters.inputs import Input
from fuseline.exporters.tasks import Task
from fuseline.exporters.wrapper import Loss

__all__ = ["Wav2Vec2"]


@register_family
class Wav2Vec2(Family):
    model_types = ("data2vec-audio", "hubert", "unispeech", "unispeech-sat", "wav2vec2", "wavlm")
    disabled = {"apply_spec_augment": False}

    def loss(self, model: nn.Module, task: Task) -> Loss | None:
        """CTC; transformers' own looks at the largest label and collects labels of all rows in one."""
        if task.name != "ctc":
            return None
        config: Any = model.config

        def loss(output: Any, labels: Tensor) -> Tensor:
            rows, frames = output.logits.shape[:2]
            return ctc_loss(
                output.logits,
                labels,
                torch.full((rows,), frames),
                config.pad_token_id,
                config.ctc_loss_reduction,
                config.ctc_zero_infinity,
            )

        return loss

    def inputs(self, model: nn.Module, task: Task, *, train: bool) -> tuple[Input, ...]:
        made = super().inputs(model, task, train=train)
        if not train or task.name != "ctc":
            return made
        # The recursion is unrolled over time, so lengths are fixed; only the batch stays free.
        sizes = self.sizes(2, 7)
        return tuple(replace(i, axes=tuple(_fixed(axis, sizes) for axis in i.axes)) for i in made)


def _fixed(axis: str | int, sizes: dict[str, int]) -> str | int:
    return axis if isinstance(axis, int) or axis == "batch" else sizes[axis]
