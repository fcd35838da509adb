"""Structural diffs of models: snapshot, comparison, and renderings as text, JSON and HTML."""

from fuseline.engine.diff.compare import diff
from fuseline.engine.diff.result import GraphDiff, ModelDiff
from fuseline.engine.diff.snapshot import Snapshot

__all__ = ["GraphDiff", "ModelDiff", "Snapshot", "diff"]
