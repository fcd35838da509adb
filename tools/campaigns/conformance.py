"""onnx's own backend cases (the nodes of 1.16.2, and small models): what ONNX Runtime passes before the
pipeline it must pass after it.

    python -m fuseline.tools.campaigns.conformance [--pipeline inference-O3] [--only TEXT]

Each case has a model, inputs and the expected outputs. Exit 1 if the pipeline breaks one.
"""

from __future__ import annotations

import argparse
import collections
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns.fuzz.pipelines import READY
from fuseline.tools.campaigns.third_party import CACHE, fetch_wheel
from fuseline.tools.console import console

__all__ = ["Case", "cases", "main"]

_REQUIREMENT = "onnx==1.16.2"
_INSIDE = "onnx/backend/test/data/node/"
# Small models that newer onnx packages still carry.
_INSTALLED = ("simple", "pytorch-converted", "pytorch-operator")
# What onnx's own backend tests allow.
_RTOL, _ATOL = 1e-3, 1e-5


class Case:
    """One folder: a model and sets of inputs and outputs."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.model = folder / "model.onnx"
        self._sets = sorted(folder.glob("test_data_set_*"))

    def passes(self, model: Model) -> bool:
        """Whether ONNX Runtime gives the expected outputs."""
        try:
            session = runtime.session(model, threads=1)
            return all(self._matches(session, model, folder) for folder in self._sets)
        except Exception:  # ONNX Runtime raises a dozen unrelated types
            return False

    def _matches(self, session: Any, model: Model, folder: Path) -> bool:
        names = [i.name for i in session.get_inputs()]
        feeds = dict(zip(names, _values(folder, "input", model.graph.inputs), strict=False))
        expected = list(_values(folder, "output", model.graph.outputs))
        return all(map(_equal, session.run(None, feeds), expected))


def _values(folder: Path, kind: str, interface: Any) -> Iterator[Any]:
    for index, value in enumerate(interface):
        data = (folder / f"{kind}_{index}.pb").read_bytes()
        if type(value.type).__name__ == "SequenceType":
            yield numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        elif type(value.type).__name__ == "OptionalType":
            yield numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        else:
            yield numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(_equal, actual, expected))
    if expected is None or actual is None:
        return actual is expected
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(actual, expected))
    return bool(np.allclose(actual, expected, rtol=_RTOL, atol=_ATOL, equal_nan=True))


def cases(cache: Path = CACHE) -> list[Case]:
    """All cases, downloaded on first use."""
    folder = cache / "conformance"
    if not folder.is_dir():
        with zipfile.ZipFile(fetch_wheel(_REQUIREMENT, cache)) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if n.startswith(_INSIDE)])
    installed = Path(onnx.__file__).parent / "backend/test/data"
    roots = [folder / _INSIDE, *(installed / kind for kind in _INSTALLED)]
    found = [f for root in roots if root.is_dir() for f in sorted(root.iterdir())]
    return [Case(f) for f in found if (f / "model.onnx").is_file()]


def check(case: Case, pipeline: Pipeline) -> str:
    """What became of the case."""
    try:
        before = Model.load(case.model)
    except FuselineError as error:
        return f"not loaded: {error.message}"
    if not case.passes(before):
        return "not passed before"
    try:
        result = pipeline.run(before)
    except FuselineError as error:
        return f"BROKEN: {error}"
    if not case.passes(result.model):
        changed = [r.name for r in result.records if r.changes]
        return f"BROKEN by {', '.join(changed)}"
    return "passed, transformed" if result.changes else "passed, unchanged"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipeline", action="append", help="repeatable; every ready one of inference else")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.only in case.name]
    broken = [_run_all(chosen, pipeline) for pipeline in arguments.pipeline or READY]
    return 1 if any(broken) else 0


def _run_all(chosen: list[Case], name: str) -> int:
    """How many cases the pipeline breaks."""
    pipeline = Pipeline.resolve(name)
    counts: collections.Counter[str] = collections.Counter()
    broken = 0
    for case in chosen:
        outcome = check(case, pipeline)
        counts[outcome.split(":")[0].split(" by ")[0]] += 1
        if outcome.startswith("BROKEN"):
            broken += 1
            console.print(f"{case.name}: {outcome}")
    console.print(name)
    for outcome, count in counts.most_common():
        console.print(f"{count:5} {outcome}")
    return broken


if __name__ == "__main__":
    raise SystemExit(main())
