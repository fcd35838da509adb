"""What every fusion owes: its golden cases, and a counterpart that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuseline.engine.patterns import Fusion
from fuseline.engine.registry import registry

GOLDEN = Path(__file__).parents[2] / "golden"
OWED = {
    "positive",
    "swapped_operands",
    "wrong_constant",
    "intermediate_used_elsewhere",
    "intermediate_is_an_output",
    "inside_if",
}
FUSIONS = sorted(
    p.name for p in registry if issubclass(p, Fusion) and p.__module__.startswith("fuseline.passes.")
)


@pytest.mark.parametrize("name", FUSIONS)
def test_every_fusion_has_its_golden_cases(name: str) -> None:
    text = (GOLDEN / f"{name.replace('-', '_')}.onnxtxt").read_text()
    assert set(re.findall(r"(?m)^// CASE: (\w+)$", text)) >= OWED


def test_every_counterpart_is_a_pass_for_training() -> None:
    for declared in registry:
        if declared.counterpart is not None:
            assert registry[declared.counterpart].phase in ("any", "pre-gradient"), declared.name
