"""Torch's export errors in one line: what in the model is the matter, where, and what can be done."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping

from torch import fx

__all__ = ["explain", "frame_of"]

_USER_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')
_MISSING_OPERATOR = re.compile(r"OpOverload\(op='([\w.]+)'", re.ASCII)
_SPECIALISED = re.compile(r"(?:You marked|The values? of|Not all values of) ([^\n]{0,200})")


def explain(error: BaseException, traces: Mapping[str, str]) -> tuple[str, str]:
    """A one-line message and a hint for any exception that torch.export or torch.onnx may raise.

    `traces` has the place in the model's code for each operator, as far as it is known.
    """
    chain = list(_chain(error))
    text = "\n".join(str(e) for e in chain)
    where = _where(chain)
    if "data-dependent" in text or "GuardOnDataDependentSymNode" in text:
        return (
            f"its Python code branches on the content of a tensor{where}, which a graph cannot do",
            "rewrite that line with torch.where, or switch the feature off in the config",
        )
    if "onstraints violated" in text or "specialized" in text:
        detail = _SPECIALISED.search(text)
        said = f" ({detail.group(0).strip()})" if detail else ""
        return (
            f"a dynamic axis is forced to one size{said}{where}",
            "export with fixed shapes (dynamic=False), or name only the axes that may change",
        )
    missing = sorted(set(_MISSING_OPERATOR.findall(text)))
    if missing and ("No ONNX function" in text or "DispatchError" in text or "decompos" in text):
        where = _place(_frames_in(traces.get(missing[0], ""))) or where
        return (
            f"ONNX has no translation for {', '.join(missing)}{where}",
            "replace the operator by others, or wait for a translation in onnxscript",
        )
    first = next((line.strip() for line in str(chain[-1]).splitlines() if line.strip()), "no message")
    return f"{type(chain[-1]).__name__}: {first[:300]}{where}", "see the log for the place in the model"


def frame_of(node: fx.Node) -> str:
    """Where the model's code makes a traced node, as ` at file:line`, or nothing."""
    return _place(_frames_in(node.meta.get("stack_trace") or ""))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _where(chain: list[BaseException]) -> str:
    """The innermost line of model code that an error's text or traceback names."""
    frames: list[tuple[str, str]] = []
    for error in chain:
        trace = error.__traceback__
        while trace is not None:
            frames.append((trace.tb_frame.f_code.co_filename, str(trace.tb_lineno)))
            trace = trace.tb_next
        frames += _frames_in(str(error))
    return _place(frames)


def _frames_in(text: str) -> list[tuple[str, str]]:
    return [(file, line) for file, line, _ in _USER_FRAME.findall(text)]


def _place(frames: list[tuple[str, str]]) -> str:
    """The innermost frame that belongs to the model."""
    outside = [f for f in frames if not _is_machinery(f[0])]
    if not outside:
        return ""
    file, line = outside[-1]
    return f" at {file.rsplit('site-packages/', 1)[-1]}:{line}"


def _is_machinery(file: str) -> bool:
    return file.startswith((*_folders(), "<")) or file.endswith("/contextlib.py")


@functools.cache
def _folders() -> tuple[str, ...]:
    """Where what traces and translates is installed: a model may lie in a folder of the same name."""
    specs = map(importlib.util.find_spec, ("torch", "onnxscript", "onnx_ir", "fuseline"))
    return tuple(f"{folder}/" for spec in specs if spec for folder in spec.submodule_search_locations or ())
