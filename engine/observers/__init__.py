"""Observers of a pipeline run: timing, per-pass diffs, verification, expectations."""

from fuseline.engine.observers.dump_diffs import DumpDiffs
from fuseline.engine.observers.expect import Expect, load_expectations
from fuseline.engine.observers.timing import Timing
from fuseline.engine.observers.verify import Verify

__all__ = ["DumpDiffs", "Expect", "Timing", "Verify", "load_expectations"]
