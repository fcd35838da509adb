"""Analyses with a cache on the run.

`rewriter.analysis(Positions)` works an analysis out, or gives what an earlier pass has worked out if no
change came between. Every rewrite that is permitted ends what is kept, apart from what the pass declares in
`preserves`; so a pass that asks in front of its rewrites asks once, and goes on with what it was given.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from fuseline.engine.model import Model

__all__ = ["Analyses", "Analysis", "Kind"]


class Analysis(Protocol):
    """Anything that is worked out from a model alone."""

    def __init__(self, model: Model) -> None: ...


Kind = TypeVar("Kind", bound=Analysis)


class Analyses:
    """What is known about one model as it is now."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._known: dict[type[Analysis], Analysis] = {}

    def get(self, kind: type[Kind]) -> Kind:
        found = self._known.get(kind)
        if not isinstance(found, kind):
            found = self._known[kind] = kind(self.model)
        return found

    def forget(self, preserved: Collection[type[Analysis]] = ()) -> None:
        """The model has changed, in ways that leave the analyses named true."""
        if self._known:
            self._known = {kind: found for kind, found in self._known.items() if kind in preserved}
