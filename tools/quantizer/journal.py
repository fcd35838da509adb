"""The journal of a tuning run: every trial on disk once it is judged, so that a rerun goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuseline.engine.files import atomic_write
from fuseline.engine.graph_text import graph_text
from fuseline.engine.model import Model
from fuseline.tools.quantizer.data import Batches

__all__ = ["Journal", "Trial", "key_of"]


@dataclass(frozen=True)
class Trial:
    """One model that was made and judged. `recipe` is what made it, in plain data."""

    name: str
    recipe: dict[str, Any]
    score: float
    met: bool
    float_nodes: int
    seconds: float
    bytes: int

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Better is greater: the criterion first, then little left in float, then the score."""
        return self.met, -self.float_nodes if self.met else 0, self.score


class Journal:
    """Lines of JSON: first what the run is about, then one trial each."""

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.float_score: float | None = None
        self.trials: list[Trial] = []
        self.resumed = self._read(key)
        if not self.resumed:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps({"key": key}) + "\n")

    def find(self, recipe: dict[str, Any]) -> Trial | None:
        plain = json.loads(json.dumps(recipe))
        return next((t for t in self.trials if t.recipe == plain), None)

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._append(asdict(trial))

    def set_float_score(self, score: float) -> None:
        self.float_score = score
        self._append({"float_score": score})

    def best(self) -> Trial | None:
        return max(self.trials, key=lambda t: t.rank, default=None)

    def _append(self, row: dict[str, Any]) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _read(self, key: str) -> bool:
        """Whether there is a journal of the same model, data and settings; a cut last line is left out."""
        if not self.path.exists():
            return False
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        if not rows or rows[0].get("key") != key:
            return False
        for row in rows[1:]:
            if "float_score" in row:
                self.float_score = row["float_score"]
            else:
                self.trials.append(Trial(**row))
        with atomic_write(self.path) as temporary:
            temporary.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return True


def key_of(model: Model, settings: dict[str, Any], *batches: Batches | None) -> str:
    """What two runs have in common if one can go on from the other."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(graph_text(model).encode())
    for data in batches:
        for batch in data or ():
            for name, array in sorted(batch.inputs.items()):
                digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
            if batch.labels is not None:
                digest.update(np.ascontiguousarray(batch.labels).tobytes())
    return digest.hexdigest()
