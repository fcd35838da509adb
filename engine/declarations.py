"""Whether a pass is declared rightly: asked when it is registered, so that no run finds out half-way."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

from fuseline.engine import options
from fuseline.engine.authoring import written_at
from fuseline.engine.errors import FuselineError, did_you_mean
from fuseline.engine.pass_ import Pass, Phase
from fuseline.engine.properties import Property

__all__ = ["check_declaration", "check_name"]


def check_name(name: str, place: str | None = None) -> None:
    """Words with hyphens: a name has to stand in a pipeline's text."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        where = f"{place}: " if place else ""
        hint = "write words with hyphens: fuse-clamp"
        raise FuselineError(f"{where}{name!r} is no name for a pass", hint=hint)


def check_declaration(pass_: type[Pass], provider: str) -> None:
    """Refuse a pass whose name, docstring, phase, properties, options or methods cannot be right."""
    if not pass_.name:
        raise FuselineError(f"{provider} has no name", hint="set the class attribute `name`")
    place = written_at(pass_) or provider
    check_name(pass_.name, place)
    wrong = next((fault for check in _CHECKS if (fault := check(pass_)) is not None), None)
    if wrong is not None:
        raise FuselineError(f"pass {pass_.name!r} from {place} {wrong[0]}", hint=wrong[1])


Fault = tuple[str, str | None]


def _check_written(pass_: type[Pass]) -> Fault | None:
    if not pass_.summary():
        return "has no docstring saying before → after", None
    unwritten = pass_.unwritten()
    if unwritten is None:
        return None
    hint = "a Pass has `run(self, model, rewriter)`, a Fusion `match` and `replace`"
    return f"has no method {unwritten!r}", hint


def _check_spelling(pass_: type[Pass]) -> Fault | None:
    """An attribute that means nothing, and is called almost like one that does."""
    written = {f.name for f in _fields(pass_)}
    for name, value in vars(pass_).items():
        if name.startswith("_") or name in written or hasattr(pass_.__base__, name):
            continue
        kind = _TEXTS if isinstance(value, str) else _LISTS if isinstance(value, tuple | Property) else ()
        hint = did_you_mean(name, kind, cutoff=0.8) if name not in kind else None
        if hint is not None:
            return f"sets {name!r}, which declares nothing", hint
    return None


def _check_options(pass_: type[Pass]) -> Fault | None:
    if not _fields(pass_):
        return None
    try:
        types = options.field_types(pass_)
    except Exception as error:  # annotations that are text are evaluated only now
        return f"has an option whose type cannot be read: {error}", None
    faults = (_option_fault(field, types[field.name]) for field in _fields(pass_))
    return next((fault for fault in faults if fault is not None), None)


def _fields(pass_: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(pass_)


def _option_fault(field: dataclasses.Field[Any], type_: Any) -> Fault | None:
    name, shown = field.name, type_.__name__ if type(type_) is type else str(type_).replace("typing.", "")
    if hasattr(Pass, name) or name == "produces":
        hint = f"without an annotation, `{name} = …` declares it"
        return f"has the option {name!r}, which is something else of every pass", hint
    if not name.isascii():
        return f"has the option {name!r}, which no pipeline's text can name", "write it in ASCII"
    if not options.is_readable(type_):
        return (
            f"has the option {name!r} of the type {shown}, which cannot be read from a pipeline's text",
            "an option is a bool, int, float, str, Literal, a tuple[…, ...] of these, or None beside it",
        )
    default = field.default_factory() if callable(field.default_factory) else field.default
    if default is dataclasses.MISSING:
        return f"has the option {name!r} without a default", f"write `{name}: {shown} = …`"
    if not options.fits(default, type_):
        return f"has the option {name!r} with the default {default!r}, which is no {shown}", None
    return None


def _check_conditions(pass_: type[Pass]) -> Fault | None:
    phases = typing.get_args(Phase)
    if pass_.phase not in phases:
        hint = did_you_mean(str(pass_.phase), phases) or f"the phases are {', '.join(phases)}"
        return f"has the phase {pass_.phase!r}", hint
    for name, kind, things, example in _TUPLES:
        given = getattr(pass_, name, ())
        if not isinstance(given, tuple) or not all(isinstance(item, kind) for item in given):
            return f"{name} {given!r}, which is no tuple of {things}", f"for example `{name} = ({example},)`"
    other = pass_.counterpart
    if other is not None and (
        not isinstance(other, str) or other == pass_.name or pass_.phase != "inference"
    ):
        hint = 'a pass with `phase = "inference"` names the one that does the same in training'
        return f"has the counterpart {other!r}", hint
    return None


_PROPERTIES = ("requires", "forbids", "ensures", "invalidates")
_TUPLES: tuple[tuple[str, type[Any], str, str], ...] = (
    *((name, Property, "properties", "Property.TRAINING") for name in _PROPERTIES),
    ("preserves", type, "analyses", "Liveness"),
    ("produces", str, "operators", '"Gelu"'),
)
_LISTS = tuple(name for name, *_ in _TUPLES)
_TEXTS = ("name", "phase", "counterpart")
_CHECKS = (_check_spelling, _check_written, _check_options, _check_conditions)
