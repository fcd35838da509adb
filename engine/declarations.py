"""Whether a pass is declared rightly: asked when it is registered, so that no run finds out half-way."""

from __future__ import annotations

import re
import typing

from fuseline.engine.errors import FuselineError, did_you_mean
from fuseline.engine.pass_ import Pass, Phase
from fuseline.engine.properties import Property

__all__ = ["check_declaration", "check_name"]

_PROPERTIES = ("requires", "forbids", "ensures", "invalidates")


def check_name(name: str) -> None:
    """Words with hyphens: a name has to stand in a pipeline's text."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise FuselineError(f"{name!r} is no name for a pass", hint="write words with hyphens: fuse-clamp")


def check_declaration(pass_: type[Pass], provider: str) -> None:
    """Refuse a pass without a name or a docstring, or of a phase or with properties that there are not."""
    if not pass_.name:
        raise FuselineError(f"{provider} has no name", hint="set the class attribute `name`")
    check_name(pass_.name)
    if not pass_.summary():
        raise FuselineError(f"pass {pass_.name!r} from {provider} has no docstring saying before → after")
    phases = typing.get_args(Phase)
    if pass_.phase not in phases:
        raise FuselineError(
            f"pass {pass_.name!r} from {provider} has the phase {pass_.phase!r}",
            hint=did_you_mean(str(pass_.phase), phases) or f"the phases are {', '.join(phases)}",
        )
    for attribute in _PROPERTIES:
        given = getattr(pass_, attribute)
        if not isinstance(given, tuple) or not all(isinstance(p, Property) for p in given):
            raise FuselineError(
                f"pass {pass_.name!r} from {provider} {attribute} {given!r}, which is no tuple of properties",
                hint=f"for example `{attribute} = (Property.TRAINING,)`",
            )
    if pass_.run is Pass.run:
        raise FuselineError(
            f"pass {pass_.name!r} from {provider} does nothing",
            hint="give it a method `run(self, model, rewriter)`, or make it a Fusion",
        )
