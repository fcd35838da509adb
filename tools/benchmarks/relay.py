"""A relay of trainers: each runs in a thread of its own, some steps at a time, and never two at once.

So all of them see the same machine, whatever else happens on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import transformers

__all__ = ["Leg", "Relay"]


class Relay:
    """Hands one baton round; the order is that in which legs were added."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self._changed = threading.Condition()
        self._running: list[str] = []

    def leg(self, name: str) -> Leg:
        """The callback of one trainer."""
        self._running.append(name)
        return Leg(self, name)

    def run(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Run all jobs to their end; the first failure is raised when the others are done."""
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                jobs[name]()
            except BaseException as error:
                failures.append(error)
            finally:
                self.leave(name)

        threads = [threading.Thread(target=work, args=(name,)) for name in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def wait(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running[0] == name)

    def pass_on(self) -> None:
        with self._changed:
            self._running.append(self._running.pop(0))
            self._changed.notify_all()

    def leave(self, name: str) -> None:
        with self._changed:
            self._running.remove(name)
            self._changed.notify_all()


class Leg(transformers.TrainerCallback):
    """One trainer's part: the seconds of each of its steps, batches and logs included, waiting left out.

    Processor time is that of the whole process: only one trainer runs at a time.
    """

    def __init__(self, relay: Relay, name: str) -> None:
        self._relay, self._name = relay, name
        self._begin = self._busy = 0.0
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._relay.wait(self._name)
        self._start()

    def _start(self) -> None:
        self._begin, self._busy = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._begin)
        self.cpu.append(time.process_time() - self._busy)
        if state.global_step % self._relay.turn == 0:
            self._relay.pass_on()
            self._relay.wait(self._name)
        self._start()
