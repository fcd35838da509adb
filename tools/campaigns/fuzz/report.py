"""A finding as text, and as files that show it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from fuseline.tools.campaigns.fuzz.cases import Case
from fuseline.tools.campaigns.fuzz.judge import Verdict

__all__ = ["Finding", "save"]


@dataclass
class Finding:
    case: Case
    verdict: Verdict
    times: int

    def __str__(self) -> str:
        lines = [
            f"// CASE {self.case.label}, {self.times} like it: {self.verdict.status}, {self.verdict.message}",
            f"// PASS {self.verdict.blame}",
            f"// RUN: {self.case.pipeline}",
            _text(self.case.model),
        ]
        if self.verdict.transformed:
            lines += ["// BECAME:", _text(self.verdict.transformed)]
        return "\n".join(lines)


def _text(model: bytes) -> str:
    return onnx.printer.to_text(onnx.ModelProto.FromString(model))


def save(finding: Finding, folder: Path) -> None:
    """model.onnx, inputs-N.npz and the text, in a folder of their own."""
    blame = finding.verdict.blame.replace(" ", "-")[:60] or "unknown"
    target = folder / f"{finding.verdict.status}-{blame}-{finding.case.label.replace('/', '-')}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.onnx").write_bytes(finding.case.model)
    (target / "finding.txt").write_text(str(finding))
    for index, feed in enumerate(finding.case.feeds):
        np.savez(target / f"inputs-{index}.npz", allow_pickle=True, **feed)
