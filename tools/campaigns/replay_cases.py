"""The cases of a replay: one recorded model and one pipeline each, transformed into canonical text."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from fuseline.tools.campaigns.workers import spread

__all__ = ["PIPELINES", "Case", "cases", "transform_all"]

_INFERENCE = ("inference-O1", "inference-O2", "inference-O3", "quantize-prepare")
_PREPARED = "simplify-for-training,prepare-for-gradient"
PIPELINES = {
    "zoo-inference": _INFERENCE,
    "zoo-training": (
        "simplify-for-training",
        _PREPARED,
        "training",
        "training-stock",
        "training,accumulate-gradients,insert-optimizer",
        "training-stock,insert-optimizer{kernels=false}",
    ),
    "third-party": _INFERENCE,
    "node": ("inference-O3", _PREPARED),
}
"""The kind of a model (its folder in the record) → the pipelines that it goes through."""

_SINCE = ("eliminate-padding", "drop-unused-results", "sparse-embedding-gradient", "fuse-log-sigmoid")
"""Passes that ready pipelines got after the record was made: without them they are what was recorded."""


@dataclass(frozen=True)
class Case:
    """One model of the record, and one pipeline."""

    model: Path
    source: str
    pipeline: str

    def __str__(self) -> str:
        return f"{self.source} | {self.pipeline}"

    def text(self, folder: Path) -> Path:
        """Where its text is kept in a folder."""
        return folder / "texts" / self.source / f"{self.pipeline}.txt.gz"

    def read(self, folder: Path) -> str:
        return gzip.decompress(self.text(folder).read_bytes()).decode()

    def write(self, folder: Path, text: str) -> None:
        path = self.text(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def cases(folder: Path, wanted: re.Pattern[str]) -> list[Case]:
    """What the models of a record are to go through."""
    found = []
    for kind, pipelines in PIPELINES.items():
        for model in sorted((folder / "models" / kind).glob("*.onnx")):
            source = f"{kind}/{model.stem}"
            if wanted.search(source):
                found += [Case(model, source, pipeline) for pipeline in pipelines]
    return found


def transform_all(chosen: list[Case], folder: Path, processes: int) -> None:
    """Write the text of each case that the folder lacks."""
    jobs = [(case, folder) for case in chosen if not case.text(folder).is_file()]
    spread("graphs", _transform, jobs, lambda job: job[0].text(job[1]).is_file(), processes)


def _transform(job: tuple[Case, Path]) -> None:
    import fuseline
    from fuseline.engine.canonical import canonical_text

    case, folder = job
    # What a crash inside the runtime leaves behind is a finding as well.
    case.write(folder, "error\tthe process died\n")
    try:
        pipeline = fuseline.Pipeline.resolve(case.pipeline)
        later = [p.name for p in pipeline.passes() if p.name in _SINCE]
        result = pipeline.run(fuseline.load(case.model), disable=later)
        text = canonical_text(result.model)
    except fuseline.FuselineError as error:
        text = f"error {type(error).__name__}\t{str(error).splitlines()[0]}\n"
    case.write(folder, text)
