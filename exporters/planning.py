"""The plan of an export: which inputs, which outputs, which example, under which patches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import Family, family_of
from fuseline.exporters.inputs import Input, Padding, sample
from fuseline.exporters.patches import traceable, without_dropout
from fuseline.exporters.sources import Source, is_transformers
from fuseline.exporters.swapping import swapped
from fuseline.exporters.wrapper import Loss, ModelWrapper, Wrapper

__all__ = ["CASES", "EXAMPLE_SIZES", "Case", "Dynamic", "Plan", "make_plan"]

#: True: the axes that the task declares (for a plain module the first of every input); False: none;
#: or, by input, which axis is called what.
Dynamic = bool | Mapping[str, Mapping[int, str]]

#: (batch, sequence): nothing is 1 and nothing equals anything else, so that no axis is specialised.
EXAMPLE_SIZES = (3, 7)
Sizes = tuple[int, ...]


class Case(NamedTuple):
    """A batch that a check runs: its sizes, and the side on which its shorter rows are padded."""

    sizes: Sizes
    padding: Padding

    @property
    def seed(self) -> int:
        return sum(self.sizes)


#: Each differs from the example in every axis, one has batch 1; rows are padded left, right and not at all.
CASES = (Case((1, 12), "none"), Case((4, 9), "right"), Case((2, 6), "left"))


@dataclass
class Plan:
    """Everything that tracing and checking need to know."""

    wrapper: Wrapper
    inputs: tuple[Input, ...]
    family: Family
    train: bool
    make_batch: Callable[[Case, int], dict[str, Tensor]]
    example_sizes: Sizes = EXAMPLE_SIZES
    cases: tuple[Case, ...] = CASES
    #: What torch computes, where that is not what is traced.
    reference: Wrapper | None = None

    @property
    def model(self) -> nn.Module:
        return self.wrapper.model

    def example(self) -> list[Tensor]:
        """The batch that is traced."""
        return self._ordered(self.make_batch(Case(self.example_sizes, "right"), 0))

    def checked(self) -> Iterator[list[Tensor]]:
        """The batches that a check runs; where nothing may change there is one."""
        cases = self.cases if any(item.dynamic for item in self.inputs) else self.cases[:1]
        for case in cases:
            yield self._ordered(self.make_batch(case, case.seed))

    def _ordered(self, made: Mapping[str, Tensor]) -> list[Tensor]:
        return [made[item.name] for item in self.inputs]

    def __post_init__(self) -> None:
        moving = self._moving_buffers() if self.train else ()
        for wrapper in (self.wrapper, self.reference):
            if wrapper is not None:
                wrapper.moving = moving

    def _moving_buffers(self) -> tuple[str, ...]:
        """The buffers that one call moves: running statistics, spectral norm's vectors, an average."""
        if not any(True for _ in self.model.buffers()):
            return ()
        with torch.no_grad(), self.as_torch_runs():
            before = {
                name: (value, value.clone(), value._version) for name, value in self.model.named_buffers()
            }
            self._outputs(self.example())
            after = dict(self.model.named_buffers())
            replaced = [name for name, (value, _, _) in before.items() if after.get(name) is not value]
            # Not every operator of torch counts what it writes, and not all that is written differs.
            moved = [
                name
                for name, (value, old, version) in before.items()
                if value._version != version or not torch.equal(value, old)
            ]
        if replaced:
            raise ExportError(
                f"{type(self.model).__name__} puts a new tensor in place of its buffer {replaced[0]}",
                hint="write into the buffer instead: buffer.copy_(new)",
            )
        return tuple(moved)

    def notes(self) -> list[str]:
        """What the graph does not do although the model, trained by torch, would."""
        config = getattr(self.model, "config", None)
        if not self.train or config is None:
            return []
        off = [name for name, value in self.family.disabled.items() if getattr(config, name, value) != value]
        return [f"{name}: switched off, it draws on the host" for name in off]

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """The model in the mode and form in which it is traced; undone afterwards."""
        with ExitStack() as stack:
            stack.enter_context(self._mode())
            stack.enter_context(traceable(self.model))
            stack.enter_context(
                _configured(self.model, {**_traceable_settings(self.model), **self.family.settings})
            )
            for patch in self.family.patches(self.model, train=self.train):
                stack.enter_context(patch)
            yield

    def expected(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """What torch itself gives, unpatched, but without what is random."""
        with torch.no_grad(), self.as_torch_runs():
            return self._outputs(batch)

    def expected_gradients(self, batch: list[Tensor]) -> dict[str, Tensor]:
        """Torch's gradients of the loss by parameter name; zero where the loss does not depend on it."""
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        with self.as_torch_runs():
            loss = self._outputs(batch)["loss"]
            found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        pairs = zip(trained.items(), found, strict=True)
        return {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}

    def _outputs(self, batch: list[Tensor]) -> dict[str, Tensor]:
        wrapper = self.reference or self.wrapper
        values = wrapper(*[value.clone() for value in batch])
        return dict(zip(wrapper.output_names, values, strict=True))

    @contextmanager
    def as_torch_runs(self) -> Iterator[None]:
        """Buffers move inside, and random numbers are drawn; afterwards all is as it was."""
        buffers = [(value, value.clone()) for value in self.model.buffers()]
        try:
            with self._mode(), without_dropout(self.model), torch.random.fork_rng(devices=[]):
                yield
        finally:
            with torch.no_grad():
                for value, before in buffers:
                    value.copy_(before)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """The mode in which the model is traced; parts that are in another one (`norm.eval()`) stay so."""
        modes = [(module, module.training) for module in self.model.modules()]
        with _configured(self.model, {**_settings(self.model, self.train), **self.family.disabled}):
            if self.model.training != self.train:
                self.model.train(self.train)
            try:
                yield
            finally:
                for module, training in modes:
                    module.training = training


def make_plan(
    source: Source,
    *,
    train: bool,
    dynamic: Dynamic = True,
    example_inputs: Any = None,
    loss: Loss | None = None,
) -> Plan:
    """Decide inputs, outputs and example batches for a source."""
    given = example_inputs if example_inputs is not None else source.example_inputs
    loss = loss if loss is not None else source.loss
    if given is None and is_transformers(source.module):
        return _for_transformers(source, train, dynamic, loss)
    if given is None:
        raise ExportError(
            f"{source.label} is a plain torch module: its inputs are unknown",
            hint='give example_inputs={"name": tensor, …}',
        )
    return _from_example(source, _named(source.module, given), train, dynamic, loss)


def _for_transformers(source: Source, train: bool, dynamic: Dynamic, loss: Loss | None) -> Plan:
    task, module = source.task, source.module
    assert task is not None
    if train and loss is None and not task.can_train:
        raise ExportError(
            f"the task {task.name} has no loss of its own",
            hint="give loss=(output, **labels) -> scalar and example_inputs that hold the labels",
        )
    config: Any = module.config
    family = family_of(config)
    with _configured(module, _settings(module, train)):
        inputs = family.inputs(module, task, train=train)
    if not train and getattr(config, "is_encoder_decoder", False):
        # In training the labels, shifted, are what the decoder reads.
        inputs = (*inputs, Input("decoder_input_ids", ("batch", "target_sequence"), "tokens"))
    inputs = _fixed(inputs, family) if dynamic is False else _renamed(inputs, dynamic)
    accepted = inspect.signature(module.forward).parameters
    arguments = dict(task.loss_arguments) if train else {}
    arguments |= {"use_cache": False} if "use_cache" in accepted else {}
    arguments |= {"return_dict": True} if "return_dict" in accepted else {}
    own_loss = family.loss(module, task) if train and loss is None else None
    names = [item.name for item in inputs]
    wrapper = ModelWrapper(
        module,
        names,
        task.outputs,
        arguments=arguments,
        loss_inputs=[item.name for item in task.labels] if own_loss else (),
        loss=own_loss or loss,
        with_loss=train,
    )
    reference = ModelWrapper(module, names, task.outputs, arguments=arguments, loss=loss, with_loss=train)

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        return sample(inputs, family.sizes(*case.sizes), config, seed, case.padding)

    return Plan(wrapper, inputs, family, train, make_batch, reference=reference)


@contextmanager
def _configured(module: nn.Module, settings: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(swapped(module.config, name, value))
        yield


def _settings(module: nn.Module, train: bool) -> dict[str, Any]:
    """Settings of a transformers config that must hold while the model is traced."""
    config: Any = getattr(module, "config", None)
    if not is_transformers(module) or not hasattr(config, "problem_type"):
        return {}
    settings: dict[str, Any] = {"use_cache": False}
    if train and config.problem_type is None and "Classification" in type(module).__name__:
        # Left open, the model would look at the labels' type, and some at their content.
        one = config.num_labels == 1
        settings["problem_type"] = "regression" if one else "single_label_classification"
    return settings


def _traceable_settings(module: nn.Module) -> dict[str, Any]:
    """All experts of a mixture in one batched product: where a token goes is data, and no loop follows it."""
    if is_transformers(module) and hasattr(module.config, "_experts_implementation"):
        return {"_experts_implementation": "batched_mm"}
    return {}


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


def _from_example(
    source: Source, example: dict[str, Tensor], train: bool, dynamic: Dynamic, loss: Loss | None
) -> Plan:
    axes = {name: _axes(name, value, dynamic) for name, value in example.items()}
    inputs = tuple(Input(name, axes[name], "given") for name in example)
    accepted = inspect.signature(source.module.forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for_loss = [n for n in example if n not in accepted and not takes_any]
    if for_loss and loss is None:
        raise ExportError(
            f"{source.label} takes no input called {for_loss[0]!r}",
            hint="give loss=(output, **labels) -> scalar, which is called with what the model does not take",
        )
    wrapper = ModelWrapper(
        source.module,
        list(example),
        source.task.outputs if source.task else (),
        arguments={"return_dict": True} if "return_dict" in accepted else {},
        loss_inputs=for_loss,
        loss=loss,
        with_loss=train,
    )

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        return {item.name: _resized(example[item.name], item, case.sizes) for item in inputs}

    return Plan(wrapper, inputs, family_of(getattr(source.module, "config", None)), train, make_batch)


def _axes(name: str, value: Tensor, dynamic: Dynamic) -> tuple[str | int, ...]:
    if isinstance(dynamic, Mapping):
        names = dynamic.get(name, {})
    else:
        names = {0: "batch"} if dynamic and value.dim() else {}
    return tuple(names.get(i, size) for i, size in enumerate(value.shape))


def _resized(value: Tensor, item: Input, sizes: Sizes) -> Tensor:
    """The example repeated and cut along its dynamic axes; its content stays valid that way."""
    for axis, name in item.dynamic.items():
        wanted = sizes[0] if name == "batch" else sizes[1]
        repeats = -(-wanted // value.shape[axis])
        value = torch.cat([value] * repeats, dim=axis).narrow(axis, 0, wanted)
    return value.contiguous()
