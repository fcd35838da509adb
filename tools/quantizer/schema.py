"""The JSON schema of the configuration, made from its types."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from fuseline.engine import options
from fuseline.tools.quantizer.config import Config

__all__ = ["schema"]

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema() -> dict[str, Any]:
    """What editors and validators take."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fuseline quantize",
        **_object(Config),
    }


def _object(owner: type[Any]) -> dict[str, Any]:
    hints = options.field_types(owner)
    properties = {options.kebab(f.name): _described(hints[f.name], f) for f in dataclasses.fields(owner)}
    return {
        "type": "object",
        "description": (owner.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": properties,
    }


def _described(type_: Any, field: dataclasses.Field[Any]) -> dict[str, Any]:
    made = _type(type_)
    if field.default is not dataclasses.MISSING and field.default not in (None, ()):
        made["default"] = field.default
    return made


def _type(type_: Any) -> dict[str, Any]:
    origin = typing.get_origin(type_)
    if origin in (typing.Union, types.UnionType):
        choices = [c for c in typing.get_args(type_) if c is not type(None)]
        return {"anyOf": [*(_type(c) for c in choices), {"type": "null"}]}
    if origin is typing.Literal:
        return {"enum": list(typing.get_args(type_))}
    if origin is tuple:
        return {"type": "array", "items": _type(typing.get_args(type_)[0])}
    if dataclasses.is_dataclass(type_):
        return _object(typing.cast(type[Any], type_))
    return {"type": _PLAIN[type_]}
