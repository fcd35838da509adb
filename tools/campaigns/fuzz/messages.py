"""ONNX files that parse and make no sense: one to three fields of the message changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

__all__ = ["mutate_message"]

_NUMBERS = (0, 1, -1, 2, 7, 255, 1 << 31, -(1 << 31), 1 << 62)
_WORDS = (
    "",
    "x0",
    "v1",
    "v2",
    "Relu",
    "Conv",
    "If",
    "Constant",
    "axis",
    "perm",
    "value",
    "no such",
    "com.microsoft",
)
_NOT_UTF8 = b"\xff\xfe"
_PLACEHOLDER = "QQQQ"


def mutate_message(chance: random.Random, data: bytes) -> bytes:
    """The model with random fields deleted, doubled or replaced; some strings become invalid UTF-8."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(chance.randint(1, 3)):
        message, field = chance.choice(list(_fields(model)))
        _change(chance, message, field)
    # A string that is not UTF-8 cannot be set; its bytes can be written over.
    return bytes(model.SerializeToString().replace(_PLACEHOLDER.encode(), _NOT_UTF8 * 2))


def _fields(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field that is set, at every depth."""
    for field, content in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in content if field.is_repeated else [content]:
                yield from _fields(inner)


def _change(chance: random.Random, message: Message, field: FieldDescriptor) -> None:
    if chance.random() < 0.2:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_list(chance, getattr(message, field.name), field)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        _set(message, field, _scalar(chance, field))


def _change_list(chance: random.Random, content: Any, field: FieldDescriptor) -> None:
    if not len(content):
        return
    at = chance.randrange(len(content))
    how = chance.randrange(3)
    if how == 0:
        del content[at]
    elif how == 1:
        content.append(content[at])
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        try:
            content[at] = _scalar(chance, field)
        except (ValueError, TypeError):
            del content[at]
    else:
        content.insert(0, content[at])


def _set(message: Message, field: FieldDescriptor, content: Any) -> None:
    try:
        setattr(message, field.name, content)
    except (ValueError, TypeError):
        message.ClearField(field.name)


def _scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return _PLACEHOLDER if chance.random() < 0.3 else chance.choice(_WORDS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice((b"", b"\xff", chance.randbytes(chance.randint(1, 64))))
    return chance.choice(_NUMBERS)
