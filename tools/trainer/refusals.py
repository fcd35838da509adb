"""When the graph is not the way: what is said, what is remembered, and what is an error."""

from __future__ import annotations

import logging
from typing import Literal

from fuseline.engine.errors import FuselineError

__all__ = ["Fallback", "Refusals"]

logger = logging.getLogger(__name__)
#: What happens to a call that cannot run on the graph: torch does it, or it is an error.
Fallback = Literal["torch", "error"]


class Refusals:
    """Why calls of one model run in torch; each reason is said once."""

    def __init__(self, model: str, fallback: Fallback) -> None:
        self._model = model
        self._fallback = fallback
        self._noted: dict[str, None] = {}
        #: Why the model runs in torch; None while it does not have to.
        self.blocked: str | None = None
        #: Why the optimizer is not in the graph, though it was to be.
        self.native: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """All of them, a line each."""
        known = (r for r in (self.blocked, self.native) if r is not None)
        return tuple(reason.splitlines()[0] for reason in (*self._noted, *known))

    def note(self, reason: str, training: bool) -> None:
        """Generation and the like may run in torch without a word; training may not."""
        if not training:
            return
        if self._fallback == "error":
            raise FuselineError(f"{self._model} cannot train on the graph: {reason}")
        self.remark(reason)

    def remark(self, reason: str) -> None:
        """Torch runs what no graph is made for: no failure, but nothing to keep quiet about either."""
        if reason not in self._noted:
            self._noted[reason] = None
            logger.warning("%s runs in torch: %s", self._model, reason)

    def block(self, error: Exception) -> None:
        """From now on the model runs in torch."""
        known = isinstance(error, FuselineError)
        reason = str(error) if known else f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        if self._fallback == "error":
            if known:
                raise error
            raise FuselineError(
                f"{self._model} cannot run on ONNX Runtime: {reason}",
                hint="fallback='torch' trains it in torch",
            ) from error
        self.blocked = reason
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        logger.warning(
            "%s trains in torch, since it cannot run on ONNX Runtime: %s%s", self._model, reason, notes
        )

    def refuse_native(self, reason: str) -> None:
        """From now on the optimizer is not in the graph."""
        if self._fallback == "error":
            raise FuselineError(f"whole_step=True is not possible: {reason}", hint="leave it out")
        self.native = reason
        logger.warning("whole_step=True is not possible, so the optimizer runs in torch: %s", reason)
