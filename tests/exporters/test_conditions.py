"""What a trace takes for granted about sizes is known, and what was tried is not doubted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fuseline.exporters import export
from fuseline.exporters.conditions import holds, only_excludes_one


class Deciding(nn.Module):
    def __init__(self, factor: Any) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(6, 3), factor

    def forward(self, x: Tensor) -> Any:
        return {"y": self.layer(x) * self.factor(x.shape[0]), "rows": x.shape[0], "width": x.shape[1]}


@pytest.mark.parametrize(
    ("factor", "conditions"),
    [
        (lambda rows: 2, ()),
        (lambda rows: 2 if rows > 8 else 1, ("batch <= 8",)),
        (lambda rows: 2 if rows == 77 else 1, ("batch != 77",)),
        (lambda rows: 1 if rows > 1 else 1.0, ()),  # tried at batch 1
        (lambda rows: 2 if rows % 5 == 0 and rows > 7 else 1, ("(batch % 5) != 0",)),
    ],
)
def test_what_code_decides_by_sizes_is_a_condition(factor: Any, conditions: tuple[str, ...]) -> None:
    made = export(
        Deciding(factor), train=True, loss=False, example_inputs={"x": torch.randn(3, 6)}, outputs=()
    )
    assert made.facts.interface.conditions == conditions
    assert made.facts.interface.numbers == ("rows",)


def test_conditions_are_read_and_never_run() -> None:
    sizes = {"batch": 12, "sequence": 7}
    assert holds("(batch*sequence) // 12 == min(20, sequence)", sizes)
    assert holds("not (batch % 5 == 0) and 1 < sequence", sizes)
    assert not holds("batch <= 8", sizes)
    assert not holds("length <= 8", sizes), "what is not known does not hold"
    assert not holds("__import__('os').getpid() > 0", sizes)
    assert [only_excludes_one(c) for c in ("batch != 1", "x_1 > 1", "batch != 2")] == ["batch", "x_1", None]
