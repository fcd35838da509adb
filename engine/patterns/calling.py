"""Calling what a pass author wrote: captures by name, and clear words where the names do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fuseline.engine.authoring import blamed, defined_at
from fuseline.engine.errors import PassError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.patterns.match import Context, Match
from fuseline.engine.patterns.pattern import Pattern
from fuseline.engine.rewriting.builder import Builder

__all__ = ["call", "check_parameters"]


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
