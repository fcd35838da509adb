"""The sessions of plans, shared by runs over the same graph and bounded in number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from fuseline.engine.execution.plan import Plan
from fuseline.engine.runtime import session

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["SessionCache", "cache"]


class SessionCache:
    """The last `capacity` sessions, by what they were made from; weights are no part of a session."""

    def __init__(self, capacity: int = 16) -> None:
        self.capacity = capacity
        self._sessions: OrderedDict[str, ort.InferenceSession] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, plan: Plan) -> ort.InferenceSession:
        """A session on the plan; one made before from the same graph and options is used again."""
        key = plan.key()
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = session(
                    plan.model,
                    optimize=plan.options.optimize,
                    threads=plan.options.threads,
                    providers=plan.options.providers,
                    options=lambda settings: plan.options.apply(settings, plan.order),
                )
            self._sessions.move_to_end(key)
            while len(self._sessions) > self.capacity:
                self._sessions.popitem(last=False)
            return self._sessions[key]

    def clear(self) -> None:
        with self._lock:
            self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)


cache = SessionCache()
