"""Worker processes that may die: ONNX Runtime takes the process with it when it crashes."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from fuseline.tools.campaigns.fuzz.judge import Verdict

__all__ = ["Pool"]

# Cases are small; what takes this long does not end. The runtime itself hangs on a few.
_PATIENCE = {"original": 5.0}
_OTHER_PATIENCE = 60.0

Work = Callable[[Any, Callable[[str], None]], Any]


def _serve(work: Work, pipe: Connection) -> None:
    faulthandler.disable()
    # What ONNX Runtime prints when it dies helps nobody here.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        task = pipe.recv()
        if task is None:
            return
        try:
            pipe.send(("done", work(task, lambda stage: pipe.send(("stage", stage)))))
        except Exception:
            pipe.send(("broken", traceback.format_exc()))


class _Worker:
    """One process, started again whenever it dies."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.task: Any = None
        self.stage = ""
        self.since = 0.0
        self._start()

    def _start(self) -> None:
        # Forked, since importing everything anew would cost seconds per crash; no session is open here.
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._work, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: Any) -> None:
        self.task, self.stage, self.since = task, "", time.monotonic()
        self.pipe.send(task)

    def poll(self) -> Any:
        """The answer, a Verdict on a death, or None while it works."""
        try:
            while self.pipe.poll():
                kind, content = self.pipe.recv()
                if kind == "done":
                    self.task = None
                    return content
                if kind == "broken":
                    raise RuntimeError(
                        f"the fuzzer itself failed on {getattr(self.task, 'label', self.task)}:\n{content}"
                    )
                self.stage, self.since = content, time.monotonic()
        except (EOFError, ConnectionResetError):
            return self._died("crash")
        if time.monotonic() - self.since > _PATIENCE.get(self.stage, _OTHER_PATIENCE):
            self._process.kill()
            return self._died("hang")
        return None

    def _died(self, how: str) -> Verdict:
        self._process.join()
        stage, self.task = self.stage, None
        self._start()
        if stage == "original":
            return Verdict("unusable", f"the runtime itself ends in a {how}")
        return Verdict(how, f"{how} in stage {stage!r} (exit {self._process.exitcode})")

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()


class Pool:
    """Runs `work` on tasks in several processes and yields (task, answer) as they come."""

    def __init__(self, work: Work, count: int) -> None:
        self._workers = [_Worker(work) for _ in range(count)]

    def run(self, tasks: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        busy: dict[_Worker, Any] = {}
        for worker, task in zip(self._workers, tasks, strict=False):
            worker.give(task)
            busy[worker] = task
        while busy:
            wait([w.pipe for w in busy], timeout=1.0)
            for worker, task in list(busy.items()):
                answer = worker.poll()
                if answer is None:
                    continue
                yield task, answer
                following = next(tasks, None)
                if following is None:
                    del busy[worker]
                else:
                    busy[worker] = following
                    worker.give(following)

    def ask(self, task: Any) -> Any:
        """One task, one answer."""
        return next(self.run(iter([task])))[1]

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
