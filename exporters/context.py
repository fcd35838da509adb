"""What surrounds an export: its clock, and the attention implementation that it asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fuseline.exporters.errors import ExportError
from fuseline.exporters.sources import Source, is_transformers

__all__ = ["Clock", "Progress", "attention_set"]

#: Hears the name of each phase as it begins.
Progress = Callable[[str], None]


class Clock:
    """Seconds by phase, and a word to the user as each begins."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if self._progress is not None:
            self._progress(name)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - begin, 3)


@contextmanager
def attention_set(source: Source, attention: str | None) -> Iterator[None]:
    """The wanted attention implementation while exporting, the model's own afterwards."""
    module: Any = source.module
    if attention is None or not is_transformers(module):
        yield
        return
    before = module.config._attn_implementation
    if before == attention:
        yield
        return
    try:
        module.set_attn_implementation(attention)
    except ValueError as error:
        raise ExportError(
            f"{source.label} has no {attention} attention", hint="use attention='eager'"
        ) from error
    try:
        yield
    finally:
        module.set_attn_implementation(before)
