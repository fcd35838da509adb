"""Work spread over processes that may die: a crash inside a runtime costs its job, not the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from rich.progress import Progress

from fuseline.tools.console import console

__all__ = ["spread"]

Job = TypeVar("Job")
# New processes now and then give back the memory that runtimes keep.
_JOBS_A_POOL = 200


def spread(
    label: str,
    work: Callable[[Job], None],
    jobs: Sequence[Job],
    done: Callable[[Job], bool],
    processes: int,
) -> None:
    """Call `work` for every job. `done` says what has been finished, or begun by a process that died."""
    waiting = list(jobs)
    with Progress(console=console) as progress:
        task = progress.add_task(label, total=len(waiting))
        while waiting:
            pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
            with pool:
                try:
                    for future in as_completed([pool.submit(work, job) for job in waiting[:_JOBS_A_POOL]]):
                        future.result()
                        progress.advance(task)
                except BrokenProcessPool:
                    console.print("a process died; going on with the rest")
            left = [job for job in waiting if not done(job)]
            if len(left) == len(waiting):
                raise RuntimeError(f"no process survives the first of {len(left)} jobs: {left[0]}")
            waiting = left
