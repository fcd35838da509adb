"""What a model family may declare about itself. Most families need no declaration at all."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from torch import nn

from fuseline.exporters.inputs import Input
from fuseline.exporters.tasks import TASKS, Task
from fuseline.exporters.wrapper import Loss

__all__ = ["Family"]

_BY_MAIN_INPUT = {
    "pixel_values": TASKS["image-classification"].inputs,
    "input_values": TASKS["audio-classification"].inputs,
    "input_features": TASKS["speech-seq2seq"].inputs,
}


class Family:
    """The default family; subclass it, declare what differs and register it for its model types."""

    #: The `config.model_type` values that this family answers for.
    model_types: ClassVar[tuple[str, ...]] = ()
    #: Axes that the architecture fixes, with where the config keeps their size.
    fixed_axes: ClassVar[dict[str, str]] = {
        "channels": "num_channels",
        "height": "image_size",
        "width": "image_size",
        "mel_bins": "num_mel_bins",
    }
    #: Audio samples per unit of sequence length, so that one number sizes every kind of batch.
    samples_per_step: ClassVar[int] = 160
    #: Settings under which the model computes the same in a form that can be traced.
    settings: ClassVar[dict[str, Any]] = {}
    #: Settings that switch off what no graph can do (randomness of the host); the user is told.
    disabled: ClassVar[dict[str, Any]] = {}

    def patches(self, model: nn.Module, *, train: bool) -> Iterator[AbstractContextManager[Any]]:
        """Context managers that must be active while torch traces the model."""
        yield from ()

    def loss(self, model: nn.Module, task: Task) -> Loss | None:
        """A loss that replaces the model's own where that cannot be traced; it must give the same value."""
        return None

    def inputs(self, model: nn.Module, task: Task, *, train: bool) -> tuple[Input, ...]:
        """The graph inputs: the task's, as far as the model's forward takes them, sizes settled."""
        wanted = _BY_MAIN_INPUT.get(getattr(model, "main_input_name", ""), task.inputs)
        if task.name == "zero-shot-image":
            wanted = task.inputs
        config = getattr(model, "config", None)
        if train:
            wanted = (*wanted, *(_label(item, config) for item in task.labels))
        accepted = inspect.signature(model.forward).parameters
        return tuple(
            self._settle(item, config)
            for item in wanted
            if item.name in accepted and self._has_segments(item, config)
        )

    def sizes(self, batch: int, sequence: int) -> dict[str, int]:
        """A size for every dynamic axis, all different from each other where that is possible."""
        return {
            "batch": batch,
            "sequence": sequence,
            "target_sequence": sequence // 2 + 2,
            "choices": batch + 2,
            "samples": sequence * self.samples_per_step + 37,
            "frames": sequence * 4 + 2,
            "height": 64 + 32 * (sequence % 3),
            "width": 96 + 32 * (sequence % 2),
        }

    def _has_segments(self, item: Input, config: Any) -> bool:
        return item.name != "token_type_ids" or getattr(config, "type_vocab_size", 0) > 1

    def _settle(self, item: Input, config: Any) -> Input:
        """Replace the axes that the architecture fixes by their sizes."""
        return replace(item, axes=tuple(self._axis(axis, config) for axis in item.axes))

    def _axis(self, axis: str | int, config: Any) -> str | int:
        if isinstance(axis, int) or axis not in self.fixed_axes:
            return axis
        setting = self.fixed_axes[axis]
        for holder in (config, getattr(config, "vision_config", None)):
            size = getattr(holder, setting, None)
            if isinstance(size, (list, tuple)):
                return int(size[0 if axis != "width" else -1])
            if isinstance(size, int):
                return size
        return 3 if axis == "channels" else axis


def _label(item: Input, config: Any) -> Input:
    """A class label as the config's problem type has it: a class, a number, or one indicator per class."""
    problem = getattr(config, "problem_type", None)
    if item.fill != "classes" or problem not in ("regression", "multi_label_classification"):
        return item
    classes = config.num_labels
    if problem == "regression":
        return Input(item.name, ("batch",) if classes == 1 else ("batch", classes), "normal")
    return Input(item.name, ("batch", classes), "indicators")
