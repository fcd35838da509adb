"""One rival on all cases, in a process of its own: a rival's crash must not end the comparison.

    python -m fuseline.tools.benchmarks.fusion_worker RIVAL JOBS RESULTS

Every attempt is written down before it begins and when it ends, one JSON text a line. Started again after a
crash, the worker goes on behind the attempt that did not end.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx

from fuseline.tools.benchmarks.architectures import Case
from fuseline.tools.benchmarks.fusion_counts import count, difference, outputs
from fuseline.tools.benchmarks.rivals import RIVALS, quiet

__all__ = ["attempts"]

Jobs = list[tuple[Case, list[Path]]]


def attempts(rival: str, jobs: Jobs, folder: Path, *, reuse: bool, processes: int) -> list[dict[str, Any]]:
    """What the rival made of every case: counts, and how far its outputs are from the plain model's."""
    results = folder / f"{rival.replace(' ', '-')}.jsonl"
    if not reuse:
        results.unlink(missing_ok=True)
    with ThreadPoolExecutor(processes) as pool:
        parts = [(rival, jobs[i::processes], folder / f"jobs-{i}.pickle", results) for i in range(processes)]
        list(pool.map(lambda part: _supervise(*part), parts))
    names = {case.name for case, _ in jobs}
    return [entry for entry in _read(results) if entry["ended"] and entry["case"] in names]


def _supervise(rival: str, jobs: Jobs, listed: Path, results: Path) -> None:
    """Start the worker again until it has come to its end; every start gets at least one attempt further."""
    listed.write_bytes(pickle.dumps(jobs))
    command = [sys.executable, "-m", __spec__.name, rival, str(listed), str(results)]
    while True:
        before = len(_read(results))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if len(_read(results)) == before:
            raise RuntimeError(f"{rival} cannot be run:\n{done.stderr[-2000:]}")


def _read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _begun(results: Path) -> set[tuple[str, str, str]]:
    return {(e["case"], e["source"], e["variant"]) for e in _read(results)}


def _work(rival: str, jobs: Jobs, results: Path) -> None:
    done = _begun(results)
    with results.open("a") as file:
        for case, sources in jobs:
            for entry in _case(rival, case, sources, done):
                file.write(json.dumps(entry) + "\n")
                file.flush()


def _case(
    rival: str, case: Case, sources: list[Path], done: set[tuple[str, str, str]]
) -> Iterator[dict[str, Any]]:
    expected = outputs(onnx.load(case.path), case.inputs)
    judged: dict[str, float] = {}
    for source in sources:
        for variant, run in RIVALS[rival](case, source):
            key = {"case": case.name, "source": source.name, "variant": variant}
            if tuple(key.values()) in done:
                continue
            yield {**key, "ended": False}
            try:
                with quiet():
                    made = run()
            except Exception as error:  # what cannot be applied is what is being compared
                yield {**key, "ended": True, "error": f"{type(error).__name__}: {error}"[:200]}
                continue
            if made is not None:
                # Ways of asking that come to the same graph need not be run again.
                text = str([(n.op_type, list(n.input)) for n in made.graph.node])
                if text not in judged:
                    judged[text] = _difference(made, case, expected)
                yield {**key, "ended": True, "counts": count(made), "difference": judged[text]}


def _difference(made: onnx.ModelProto, case: Case, expected: dict[str, Any]) -> float:
    try:
        return difference(expected, outputs(made, case.inputs))
    except Exception:  # a model that does not run
        return float("inf")


if __name__ == "__main__":
    _work(sys.argv[1], pickle.loads(Path(sys.argv[2]).read_bytes()), Path(sys.argv[3]))
