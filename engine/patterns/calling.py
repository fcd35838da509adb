"""Calling what a pass author wrote: captures by name, and clear words where the names do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from fuseline.engine.authoring import blamed, defined_at
from fuseline.engine.errors import PassError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.patterns.match import Context, Match
from fuseline.engine.patterns.pattern import Pattern
from fuseline.engine.rewriting.builder import Builder

__all__ = ["call", "check_made", "check_parameters"]


def check_parameters(owner: str, function: Callable[..., Any], pattern: Pattern, *, skip: int = 0) -> None:
    """Refuse a function that asks for what the pattern does not capture; the first `skip` are no captures."""
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        known = parameter.kind is parameter.VAR_KEYWORD or parameter.name in ("captures", "context")
        if not known and parameter.name not in pattern.captured:
            listed = ", ".join(sorted(pattern.captured)) or "nothing"
            raise PassError(
                f"{owner!r}, {function.__name__} at {defined_at(function)}: it asks for {parameter.name!r}, "
                f"which the pattern does not capture",
                hint=did_you_mean(parameter.name, pattern.captured) or f"the pattern captures {listed}",
            )


def call(owner: str, function: Callable[..., Any], op: Builder | None, match: Match, model: Model) -> Any:
    """Call `check` or `replace` with the captures it asks for; a capture that is absent here is None."""
    arguments: list[Any] = [] if op is None else [op]
    keywords: dict[str, Any] = {}
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters[len(arguments) :]:
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name == "captures":
            continue
        if parameter.name == "context":
            keywords["context"] = Context(model, match)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            arguments.extend(match.captures.get(parameter.name, ()))
        elif parameter.name in match.captures:
            _pass(parameter, match.captures[parameter.name], arguments, keywords, parameters)
        elif parameter.default is inspect.Parameter.empty:
            keywords[parameter.name] = None
    with blamed(owner, function):
        return function(*arguments, **keywords)


def _pass(
    parameter: inspect.Parameter,
    value: Any,
    arguments: list[Any],
    keywords: dict[str, Any],
    parameters: list[inspect.Parameter],
) -> None:
    # In front of a `*rest` parameter, captures must go by position.
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and parameter.kind is not parameter.KEYWORD_ONLY:
        arguments.append(value)
    else:
        keywords[parameter.name] = value


def check_made(
    owner: str, function: Callable[..., Any], op: Builder, values: Sequence[ir.Value], match: Match
) -> None:
    """Refuse what `replace` made of values that the graph does not have, or will not have any more."""
    head = f"{owner!r}, {function.__name__} at {defined_at(function)}"
    made = set(op.nodes)
    replaced = {old for old, new in zip(match.outputs, values, strict=True) if old is not new}
    read = [value for node in op.nodes for value in read_by(node)]
    for value in read:
        if value in replaced:
            raise PassError(
                f"{head}: what it made reads {value.name!r}, the value that it takes the place of",
                hint="build on the captures: the nodes of the match are gone afterwards",
            )
    for value in (*read, *values):
        producer = value.producer()
        if producer is None and not (value.is_graph_input() or value.is_initializer()):
            raise PassError(
                f"{head}: it uses {value.name!r}, which nothing produces",
                hint="constants are made by `op.constant`, or given to an operator as numbers",
            )
        if producer is not None and producer.graph is None and producer not in made:
            raise PassError(
                f"{head}: it uses {producer.op_type} {producer.name or ''!r}, which was not made by `op`",
                hint=f"write `op.{producer.op_type}(…)`",
            )
