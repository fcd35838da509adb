"""Worker processes that may die: ONNX Runtime takes the process with it when it crashes."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuseline.tools.campaigns.fuzz.judge import Verdict

__all__ = ["Pool"]

# Cases are small; what computes this long does not end. The runtime itself hangs on a few. Seconds of the
# processor: on a busy machine a case may wait long for its turn.
_PATIENCE = {"original": 5.0}
_OTHER_PATIENCE = 60.0
_WAITING = 10
"""What waits for so many times as long does not end either."""

Work = Callable[[Any, Callable[[str], None]], Any]


def _serve(work: Work, pipe: Connection) -> None:
    faulthandler.disable()
    # What ONNX Runtime prints when it dies helps nobody here.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    parent = multiprocessing.parent_process()
    while True:
        if parent is not None and pipe not in wait([pipe, parent.sentinel]):
            return  # nobody is left to ask
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
        self.since = self.computed = 0.0
        self._start()

    def _start(self) -> None:
        # Forked, since importing everything anew would cost seconds per crash; no session is open here.
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._work, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: Any) -> None:
        self.task = task
        self._enter("")
        self.pipe.send(task)

    def _enter(self, stage: str) -> None:
        self.stage, self.since, self.computed = stage, time.monotonic(), self._seconds()

    def _seconds(self) -> float:
        """Of the processor so far; where that is not told, of the clock."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _hangs(self) -> bool:
        patience = _PATIENCE.get(self.stage, _OTHER_PATIENCE)
        waited = time.monotonic() - self.since
        return waited > patience and (
            self._seconds() - self.computed > patience or waited > patience * _WAITING
        )

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
                self._enter(content)
        except (EOFError, ConnectionResetError):
            return self._died("crash")
        if self._hangs():
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
