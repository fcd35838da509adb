"""The form of a call: which tensors the graph takes, with which axes, and which other arguments are fixed.

A model whose task is known is exported by the task's declaration, if the call fits that; anything else is
exported by the call itself. Then an axis is of one size until a call has another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fuseline.exporters import ExportError, Input, Task
from fuseline.exporters.planning import declared_inputs
from fuseline.exporters.sources import is_transformers
from fuseline.exporters.tasks import infer_task
from fuseline.tools.trainer.call import Call
from fuseline.tools.trainer.low_precision import raised

__all__ = ["Form", "few", "forms", "task_of"]

Axes = tuple[str | int, ...]
BATCH = "batch"
#: What a random value of these is made of numbers.
_NUMBERS = ("normal", "indicators")


@dataclass(frozen=True)
class Form:
    """What decides an export besides the model."""

    #: The task whose declaration the call fits; None: the call is its own.
    task: str | None = None
    axes: tuple[tuple[str, Axes], ...] = ()
    arguments: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    with_loss: bool = True
    #: A few rows of the user's own batch, to trace with.
    example: Mapping[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    #: 1, 1.0 and True are equal, and not the same.
    _spelled: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_spelled", repr(self.arguments))

    def export_arguments(self) -> dict[str, Any]:
        """What `export` is called with."""
        asked: dict[str, Any] = {"train": True, "outputs": (), "arguments": dict(self.arguments)}
        if self.task is not None:
            return {**asked, "task": self.task}
        named = {n: {i: a for i, a in enumerate(axes) if isinstance(a, str)} for n, axes in self.axes}
        loss = None if self.with_loss else False
        return {**asked, "example_inputs": raised(dict(self.example)), "dynamic": named, "loss": loss}

    def admits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a graph of this form takes these tensors."""
        return self.task is not None or _sized(dict(self.axes), tensors)

    def grown(self, call: Call) -> Form:
        """The form that admits this call too: sizes that differ have a name from now on."""
        names: dict[tuple[str | int, int], str] = {}

        def axis(name: str, index: int, old: str | int, size: int) -> str | int:
            if old == size:
                return old
            own = old if isinstance(old, str) and old not in names.values() else f"{name}_{index}"
            return names.setdefault((old, size), own)

        axes = tuple(
            (name, tuple(axis(name, i, a, call.tensors[name].shape[i]) for i, a in enumerate(known)))
            for name, known in self.axes
        )
        return Form(None, axes, self.arguments, self.with_loss, few(call.tensors))


def forms(model: nn.Module, call: Call, with_loss: bool) -> Iterator[Form]:
    """The forms that a call can be exported by, the most general first."""
    task = task_of(model)
    if task is not None and _fits(model, task, call):
        yield Form(task.name, arguments=call.arguments)
    example = few(call.tensors)
    fixed = {name: _axes(tensor, call) for name, tensor in call.tensors.items()}
    if is_transformers(model):
        # Text is of any length, and whoever trains on it will see that.
        open_ = _opened(model, call.tensors, fixed)
        if open_ != fixed:
            yield Form(None, tuple(open_.items()), call.arguments, with_loss, example)
    yield Form(None, tuple(fixed.items()), call.arguments, with_loss, example)


def task_of(model: nn.Module) -> Task | None:
    """The task by the class's name, or by that of the first base class that has one; a hint, no more."""
    if not is_transformers(model):
        return None
    for kind in type(model).__mro__:
        if kind is nn.Module:
            return None
        try:
            return infer_task(kind.__name__, model.config)
        except ExportError:
            continue
    return None


def few(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same with two rows."""
    rows = _rows(tensors)
    return {n: t[:2].detach().clone() if t.dim() and len(t) == rows else t for n, t in tensors.items()}


def _rows(tensors: Mapping[str, Tensor]) -> int:
    return next((len(t) for t in tensors.values() if t.dim()), 0)


def _axes(tensor: Tensor, call: Call) -> Axes:
    rows = _rows(call.tensors)
    return tuple(BATCH if i == 0 and size == rows else size for i, size in enumerate(tensor.shape))


def _opened(model: Any, tensors: Mapping[str, Tensor], fixed: Mapping[str, Axes]) -> dict[str, Axes]:
    """The second axes of tokens, masks and their labels as names."""
    seq2seq = getattr(model.config, "is_encoder_decoder", False)
    sizes: dict[str, int] = {}
    found: dict[str, Axes] = {}
    for name, axes in fixed.items():
        found[name] = axes
        if len(axes) < 2 or axes[0] != BATCH or tensors[name].is_floating_point():
            continue
        of_target = name.startswith("decoder_") or (seq2seq and name == "labels")
        sequence = "target_sequence" if of_target else "sequence"
        size = tensors[name].shape[1]
        if sizes.setdefault(sequence, size) != size:
            sequence = f"{name}_1"
        found[name] = (BATCH, sequence, *axes[2:])
    return found


def _fits(model: Any, task: Task, call: Call) -> bool:
    """Whether the task's declaration speaks of this very call; labels may be left out, but all of them."""
    declared = {item.name: item for item in declared_inputs(model, task, train=True)}
    labels = {item.name for item in task.labels} & declared.keys()
    given = call.tensors.keys()
    if given - declared.keys() or (labels & given and not labels <= given) or not task.can_train:
        return False
    missing = declared.keys() - given - labels
    if any(declared[name].default is None for name in missing):
        return False
    axes = {name: declared[name].axes for name in given}
    return all(_kind_fits(declared[n], t) for n, t in call.tensors.items()) and _sized(axes, call.tensors)


def _kind_fits(item: Input, tensor: Tensor) -> bool:
    return tensor.is_floating_point() == (item.fill in _NUMBERS)


def _sized(axes: Mapping[str, Axes], tensors: Mapping[str, Tensor]) -> bool:
    """Fixed axes have their sizes, and axes of one name the same."""
    sizes: dict[str, int] = {}
    for name, known in axes.items():
        shape = tensors[name].shape
        if len(shape) != len(known):
            return False
        for axis, size in zip(known, shape, strict=True):
            if (sizes.setdefault(axis, size) if isinstance(axis, str) else axis) != size:
                return False
    return True
