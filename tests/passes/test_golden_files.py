"""What every pass owes: a golden file of its name. The collector holds that unchanged cases give reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuseline.engine.registry import registry

GOLDEN = Path(__file__).parents[1] / "golden"
ELSEWHERE = {
    # What these work on is more than a graph's text can say.
    "drop-loss": "the exporter's facts",
    "keep-backward": "a differentiated graph with its facts",
    "keep-forward": "a differentiated graph with its facts",
    "mask-padding-gradient": "the exporter's fact of padding rows",
    "scale-salient": "a calibration table",
}
# Unchanged cases whose reason no change of a few words takes away.
WITHOUT_PROOF = {
    "check_trainable::all_have_gradients",  # the pass changes nothing, ever
    "force_if_by_rank::users_take_any_rank",
    "infer_shapes::functions_have_no_types",
}
OWN = sorted(p.name for p in registry if p.__module__.startswith("fuseline.passes."))


@pytest.mark.parametrize("name", OWN)
def test_every_pass_has_a_golden_file(name: str) -> None:
    stem = name.replace("-", "_")
    has = any(GOLDEN.glob(f"{stem}.onnxtxt"))
    assert has != (name in ELSEWHERE), f"write tests/golden/{stem}.onnxtxt, or take it off the list"


def test_every_reason_that_is_not_reported_is_proven() -> None:
    unproven = set()
    for path in GOLDEN.glob("*.onnxtxt"):
        for case in path.read_text().split("// CASE: ")[1:]:
            if "// EXPECT-UNCHANGED: (" in case and "// UNLESS: " not in case:
                unproven.add(f"{path.stem}::{case.splitlines()[0].strip()}")
    assert unproven == WITHOUT_PROOF, "say with `// UNLESS: this ==> that` what would change the case"
