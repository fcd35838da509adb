"""Planning an export: which inputs, which outputs, which example, by a task's declaration or by a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import Family, family_of
from fuseline.exporters.inputs import Input, sample
from fuseline.exporters.plan import EXAMPLE_SIZES, Case, Plan, configured, settings_of
from fuseline.exporters.sources import Source, is_transformers
from fuseline.exporters.tasks import Task, infer_task
from fuseline.exporters.wrapper import Loss, ModelWrapper

__all__ = ["Dynamic", "declared_inputs", "make_plan"]

#: True: the axes that the task declares (for a plain module the first of every input); False: none;
#: or, by input, which axis is called what.
Dynamic = bool | Mapping[str, Mapping[int, str]]


def make_plan(
    source: Source,
    *,
    train: bool,
    dynamic: Dynamic = True,
    example_inputs: Any = None,
    loss: Loss | Literal[False] | None = None,
    arguments: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> Plan:
    """Decide inputs, outputs and example batches for a source."""
    given = example_inputs if example_inputs is not None else source.example_inputs
    if outputs is None:
        outputs = source.task.outputs if source.task else ()
    wanted = _Wanted(
        train=train,
        loss=(source.loss if loss is None else loss) or None,
        with_loss=train and loss is not False,
        arguments=dict(arguments or {}),
        outputs=outputs,
    )
    if given is None and is_transformers(source.module):
        return _for_transformers(source, dynamic, wanted)
    if given is None:
        raise ExportError(
            f"{source.label} is a plain torch module: its inputs are unknown",
            hint='give example_inputs={"name": tensor, …}',
        )
    return _from_example(source, _named(source.module, given), dynamic, wanted)


@dataclass(frozen=True)
class _Wanted:
    """What is to be traced of a model."""

    train: bool
    #: The user's loss; None: the model's own, if any is wanted.
    loss: Loss | None
    with_loss: bool
    #: Arguments of the forward that are no tensors.
    arguments: dict[str, Any]
    outputs: Sequence[str]


def declared_inputs(module: nn.Module, task: Task, *, train: bool) -> tuple[Input, ...]:
    """What a transformers model takes for a task."""
    with configured(module, settings_of(module, train)):
        return family_of(module.config).inputs(module, task, train=train)


def _for_transformers(source: Source, dynamic: Dynamic, wanted: _Wanted) -> Plan:
    module, train, loss = source.module, wanted.train, wanted.loss
    task = source.task or infer_task(type(module).__name__, module.config)
    if wanted.with_loss and loss is None and not task.can_train:
        raise ExportError(
            f"the task {task.name} has no loss of its own",
            hint="give loss=(output, **labels) -> scalar and example_inputs that hold the labels",
        )
    config: Any = module.config
    family = family_of(config)
    inputs = declared_inputs(module, task, train=train)
    if not train and getattr(config, "is_encoder_decoder", False):
        # In training the labels, shifted, are what the decoder reads.
        inputs = (*inputs, Input("decoder_input_ids", ("batch", "target_sequence"), "tokens"))
    inputs = _fixed(inputs, family) if dynamic is False else _renamed(inputs, dynamic)
    accepted = inspect.signature(module.forward).parameters
    arguments = dict(task.loss_arguments) if train else {}
    arguments |= {"use_cache": False} if "use_cache" in accepted else {}
    arguments |= {"return_dict": True} if "return_dict" in accepted else {}
    arguments |= wanted.arguments
    own_loss = family.loss(module, task) if wanted.with_loss and loss is None else None
    names = [item.name for item in inputs]
    settled: dict[str, Any] = {"arguments": arguments, "with_loss": wanted.with_loss, "train": train}
    wrapper = ModelWrapper(
        module,
        names,
        wanted.outputs,
        loss_inputs=[item.name for item in task.labels] if own_loss else (),
        loss=own_loss or loss,
        **settled,
    )
    reference = ModelWrapper(module, names, wanted.outputs, loss=loss, **settled)

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        return sample(inputs, family.sizes(*case.sizes), config, seed, case.padding)

    return Plan(wrapper, inputs, family, train, make_batch, reference=reference)


def _fixed(inputs: Sequence[Input], family: Family) -> tuple[Input, ...]:
    sizes = family.sizes(*EXAMPLE_SIZES)
    return tuple(replace(item, axes=item.shape(sizes)) for item in inputs)


def _renamed(inputs: tuple[Input, ...], dynamic: Dynamic) -> tuple[Input, ...]:
    """Only the axes that the user names stay dynamic, if the user names any."""
    if not isinstance(dynamic, Mapping):
        return inputs
    raise ExportError(
        "named dynamic axes are for plain modules; a transformers model has its own",
        hint="use dynamic=True, or dynamic=False for fixed shapes",
    )


def _named(module: nn.Module, given: Any) -> dict[str, Tensor]:
    """Example inputs by name; a tuple takes the names of the forward's parameters."""
    if isinstance(given, Mapping):
        return dict(given)
    values = given if isinstance(given, (tuple, list)) else (given,)
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, values, strict=False))


def _from_example(source: Source, example: dict[str, Tensor], dynamic: Dynamic, wanted: _Wanted) -> Plan:
    axes = {name: _axes(name, value, dynamic) for name, value in example.items()}
    inputs = tuple(Input(name, axes[name], "given") for name in example)
    accepted = inspect.signature(source.module.forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for_loss = [n for n in example if n not in accepted and not takes_any]
    # A default of its own may mean anything.
    named = {name: True for name in ("return_dict",) if name in accepted and accepted[name].default is None}
    if for_loss and wanted.loss is None:
        raise ExportError(
            f"{source.label} takes no input called {for_loss[0]!r}",
            hint="give loss=(output, **labels) -> scalar, which is called with what the model does not take",
        )
    wrapper = ModelWrapper(
        source.module,
        list(example),
        wanted.outputs,
        arguments=named | wanted.arguments,
        loss_inputs=for_loss,
        loss=wanted.loss,
        with_loss=wanted.with_loss,
        train=wanted.train,
    )
    lengths = _lengths(inputs, example)

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        batch, longer = case.sizes[0], case.sizes[1] - EXAMPLE_SIZES[1]
        sizes = {"batch": batch} | {name: max(2, size + longer) for name, size in lengths.items()}
        return {item.name: _resized(example[item.name], item, sizes) for item in inputs}

    family = family_of(getattr(source.module, "config", None))
    return Plan(wrapper, inputs, family, wanted.train, make_batch)


def _lengths(inputs: Sequence[Input], example: Mapping[str, Tensor]) -> dict[str, int]:
    """The example's own sizes, by axis, as they are traced: none is 1 and no two are the same."""
    found: dict[str, int] = {}
    for item in inputs:
        for axis, name in item.dynamic.items():
            size = max(2, example[item.name].shape[axis])
            while name not in found and size in (EXAMPLE_SIZES[0], *found.values()):
                size += 1
            found.setdefault(name, size)
    return {name: size for name, size in found.items() if name != "batch"}


def _axes(name: str, value: Tensor, dynamic: Dynamic) -> tuple[str | int, ...]:
    if isinstance(dynamic, Mapping):
        names = dynamic.get(name, {})
    else:
        names = {0: "batch"} if dynamic and value.dim() else {}
    return tuple(names.get(i, size) for i, size in enumerate(value.shape))


def _resized(value: Tensor, item: Input, sizes: Mapping[str, int]) -> Tensor:
    """The example repeated and cut along its dynamic axes; its content stays valid that way."""
    for axis, name in item.dynamic.items():
        repeats = -(-sizes[name] // value.shape[axis])
        value = torch.cat([value] * repeats, dim=axis).narrow(axis, 0, sizes[name])
    return value.contiguous()
