"""How calls of each kind run: by which form of graph, and what torch itself returns for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fuseline.engine.errors import FuselineError
from fuseline.exporters import ExportError
from fuseline.tools.trainer.cache import digest
from fuseline.tools.trainer.call import Call, Unsuited
from fuseline.tools.trainer.describe import describe
from fuseline.tools.trainer.effects import Effects, no_writing_of_weights
from fuseline.tools.trainer.form import Form, few, forms, task_of
from fuseline.tools.trainer.items import ItemRule
from fuseline.tools.trainer.own_forward import OwnForward
from fuseline.tools.trainer.result import Template

__all__ = ["Way", "Ways"]

logger = logging.getLogger(__name__)
#: A graph for each kind of call, but not for ever new ones.
_KINDS = 16


@dataclass
class Way:
    """What was found out about the calls of one kind."""

    form: Form
    #: What to try if the model cannot be exported by that form.
    others: Iterator[Form]
    #: The structure of a result; None: torch has to be asked (again).
    template: Template | None
    item_rule: ItemRule | None = None
    #: Whether the model draws random numbers in evaluation.
    draws: bool = False

    @property
    def labelled(self) -> bool:
        """Whether the model computes its loss."""
        return self.template is not None and self.template.has_loss

    def next_form(self, error: ExportError) -> None:
        """Go on with another form, or give up with the error."""
        found = next(self.others, None)
        if found is None:
            raise error
        logger.info("exporting by the call itself, since otherwise: %s", str(error).splitlines()[0])
        self.form = found


class Ways:
    """The ways of a model, by kind of call."""

    def __init__(self, model: nn.Module, own: OwnForward) -> None:
        self._model = model
        self._own = own
        self._found: dict[tuple[Any, ...], Way] = {}

    def forget_results(self) -> None:
        """The model may return something else now; the forms stay, with the sizes that were seen."""
        for way in self._found.values():
            way.template = None

    def of(self, call: Call) -> Way:
        """The way of a call."""
        way = self._found.get(call.kind)
        if way is None:
            if len(self._found) >= _KINDS:
                raise Unsuited(f"it was called in {_KINDS} other ways already")
            way = self._found[call.kind] = self._first(call)
        elif way.template is None:
            way.template, way.draws = self._asked(call)
        if not way.form.admits(call.tensors):
            way.form, way.others = way.form.grown(call), iter(())
            logger.info("compiling anew for sizes that change: %s", way.form.axes)
        return way

    def for_inference(self) -> Form:
        """The form of an inference graph: the task's or, without one, that of a call that was made."""
        if any(way.draws for way in self._found.values()):
            raise FuselineError(f"{type(self._model).__name__} draws random numbers in evaluation")
        task = task_of(self._model)
        if task is not None and task.can_train:
            return Form(task.name)
        found = next((way.form for way in self._found.values()), None)
        if found is None:
            raise FuselineError(
                f"how {type(self._model).__name__} is called is not known yet",
                hint="train or evaluate it first",
            )
        return found

    def _first(self, call: Call) -> Way:
        # Asking torch comes first: some models settle what they read off the labels then.
        template, draws = self._asked(call)
        others = forms(self._model, call, template.has_loss)
        return Way(next(others), others, template, draws=draws)

    def _asked(self, call: Call) -> tuple[Template, bool]:
        """Ask torch, on two rows, in evaluation mode: what comes back, and whether it is random."""
        arguments = call.all_arguments(few(call.tensors))
        with self._own.quietly():
            untouched, around = Effects(self._model), digest(describe(self._model)["code"])
            before = torch.get_rng_state()
            with no_writing_of_weights(self._model):
                result = self._own(**arguments)
            draws = not torch.equal(before, torch.get_rng_state())
            if untouched.found() is not None:
                self._settled(untouched, arguments)
            elif digest(describe(self._model)["code"]) != around:
                raise FuselineError(
                    "its forward changes a global or a closure, and did so when it was tried",
                    hint="keep in the model what a forward changes, or train it with the stock Trainer",
                )
            return Template(result), draws

    def _settled(self, untouched: Effects, arguments: Mapping[str, Any]) -> None:
        """A first call may settle something; what a second one changes as well, every call would.

        Nor is anything settled by content, that of two rows in evaluation mode.
        """
        written = untouched.buffers.written()
        settled = Effects(self._model)
        self._own(**arguments)
        try:
            settled.refuse()
            if written is not None:
                raise FuselineError(
                    f"its first call settles the buffer {written!r}",
                    hint="call it once on a batch of yours before training",
                )
        except FuselineError:
            untouched.undo()
            raise
