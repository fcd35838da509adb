"""Options as typed fields: from text or YAML to a field's type, and back to text."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from typing import Any

from fuseline.engine.errors import PipelineError, did_you_mean

_PLAIN = re.compile(r"[\w.+\-/:*]+", re.ASCII)

__all__ = ["bind", "changed", "field_types", "fits", "is_readable", "kebab", "render"]


def kebab(name: str) -> str:
    return name.replace("_", "-")


def field_types(owner: type[Any]) -> dict[str, Any]:
    """Option name (as a Python identifier) → type."""
    return _field_types(typing.cast(typing.Hashable, owner))


@functools.cache
def _field_types(owner: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(owner)
    return {f.name: hints[f.name] for f in dataclasses.fields(owner)}


def bind(owner: type[Any], label: str, given: dict[str, Any]) -> dict[str, Any]:
    """Typed keyword arguments for `owner` from option texts or YAML values."""
    types_ = field_types(owner)
    bound = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in types_:
            hint = did_you_mean(key, map(kebab, types_))
            options = ", ".join(map(kebab, types_))
            hint = hint or (f"its options are {options}" if options else "it takes no options")
            if name in vars(owner):
                hint = f"an option is annotated: `{name}: int = …`"
            raise PipelineError(f"{label!r} has no option {key!r}", hint=hint)
        try:
            bound[name] = _convert(value, types_[name])
        except (ValueError, TypeError):
            raise PipelineError(
                f"option {key!r} of {label!r} must be {_describe(types_[name])}, not {value!r}"
            ) from None
    return bound


def changed(instance: Any) -> dict[str, Any]:
    """The options that differ from their defaults, by kebab-case name."""
    out = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        default = f.default_factory() if callable(f.default_factory) else f.default
        if value != default:
            out[kebab(f.name)] = value
    return out


def render(value: Any) -> str:
    """The text form of an option's value; lists are joined with '+', since ',' separates options."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return render("+".join(v if isinstance(v, str) else render(v) for v in value))
    if isinstance(value, str):
        return (
            value if _PLAIN.fullmatch(value) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        )
    return "none" if value is None else repr(value)


def _convert(value: Any, type_: Any) -> Any:
    origin = typing.get_origin(type_)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, typing.get_args(type_))
    if origin is typing.Literal:
        choice = next((c for c in typing.get_args(type_) if str(c) == str(value)), None)
        if choice is None:
            raise ValueError(value)
        return choice
    if origin is tuple:
        if not isinstance(value, str | list | tuple):
            raise ValueError(value)
        items = value.split("+") if isinstance(value, str) else value
        return tuple(_convert(v, typing.get_args(type_)[0]) for v in items if v != "")
    return _convert_bool(value) if type_ is bool else _convert_plain(value, type_)


def _convert_union(value: Any, choices: tuple[Any, ...]) -> Any:
    if type(None) in choices and (value is None or value == "none"):
        return None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(value, choice)
        except (ValueError, TypeError):
            continue
    raise ValueError(value)


def _convert_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "yes", "on"):
        return True
    if value in ("false", "no", "off"):
        return False
    raise ValueError(value)


def _convert_plain(value: Any, type_: Any) -> Any:
    # YAML reads `on` and `no` as booleans, and would have any list or mapping become its own text.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(value)
    if type_ is int and isinstance(value, float):
        raise ValueError(value)
    made = type_(value)
    if made != made:  # nothing is less or more than what is no number
        raise ValueError(value)
    return made


def is_readable(type_: Any) -> bool:
    """Whether texts can be read as this type."""
    origin, choices = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        return all(c is type(None) or is_readable(c) for c in choices)
    if origin is tuple:
        return len(choices) == 2 and choices[1] is Ellipsis and is_readable(choices[0])
    return origin is typing.Literal or type_ in _PLAIN_TYPES


def fits(value: Any, type_: Any) -> bool:
    """Whether a default is of the type that its field declares."""
    origin, choices = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, choice) for choice in choices)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(v, choices[0]) for v in value)
    if origin is typing.Literal:
        return any(type(value) is type(c) and value == c for c in choices)
    if type_ in (int, float):
        return isinstance(value, int | type_) and not isinstance(value, bool)
    return isinstance(value, type_)


_PLAIN_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _describe(type_: Any) -> str:
    origin, choices = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(c) for c in choices)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if c is type(None) else _describe(c) for c in choices)
    if origin is tuple:
        return f"a list, each {_describe(choices[0])}"
    return _PLAIN_TYPES.get(type_, str(type_))
