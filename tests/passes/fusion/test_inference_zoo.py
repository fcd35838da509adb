"""The inference pipeline on exported models: the same outputs, and every attention fused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import run, session
from fuseline.tools.benchmarks.architectures import _inputs, zoo_case

ATTENTION = {"Attention", "MultiHeadAttention", "GroupQueryAttention"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attentions"),
    [
        ("bert", 2),
        ("gpt2", 2),
        ("llama", 2),
        ("bloom", 2),
        ("gpt-neox", 2),
        ("falcon", 2),
        ("vit", 2),
        ("bart", 6),
    ],
)
def test_outputs_stay_and_attention_is_fused(name: str, attentions: int, tmp_path: Path) -> None:
    case = zoo_case(name, "eager", tmp_path)
    before = case.model()
    after = Pipeline.resolve("inference").run(before).model
    assert sum(node.op_type in ATTENTION for node in after.nodes()) == attentions
    assert not any(node.op_type == "Softmax" for node in after.nodes())
    for batch, length in ((2, 12), (3, 20), (1, 7)):
        inputs = _inputs(before, batch, length)
        expected, actual = run(session(before, threads=1), inputs), run(session(after, threads=1), inputs)
        for key, value in expected.items():
            np.testing.assert_allclose(actual[key], value, rtol=0, atol=1e-4, err_msg=key)
