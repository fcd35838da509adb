"""YAML that a user wrote: pipelines, expectations, configurations, limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fuseline.engine.errors import PipelineError
from fuseline.engine.files import read_text

__all__ = ["Entries", "parse_yaml", "read_yaml"]


class Entries(list[Any]):
    """A list that knows the line on which each of its entries begins."""

    lines: tuple[int, ...] = ()


class _Loader(yaml.SafeLoader):
    """Of two entries under one key YAML takes the last, without a word."""

    def construct_entries(self, node: yaml.SequenceNode) -> Iterator[Entries]:
        made = Entries()
        made.lines = tuple(entry.start_mark.line + 1 for entry in node.value)
        yield made  # before its content, which may name the list itself
        made.extend(self.construct_sequence(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                message = f"{key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.construct_entries)


def read_yaml(path: Path, what: str) -> Any:
    """The content of a file."""
    return parse_yaml(read_text(path, what), str(path))


def parse_yaml(text: str, label: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise PipelineError(f"{label} is not valid YAML: {error}") from error
