"""What the campaigns over transformers' own tests and scripts make of what they find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuseline.tools.campaigns import example_scripts, stock_trainer
from fuseline.tools.campaigns.example_scripts import change_import
from fuseline.tools.campaigns.stock_trainer import Row, compare, share


def test_only_what_passes_with_stock_and_not_with_ours_counts() -> None:
    outcomes = {"both": "passed", "worse": "passed", "never": "failed", "gone": "passed", "out": "skipped"}
    stock = {name: Row(name, outcome, "", {}) for name, outcome in outcomes.items()}
    mine = {name: Row(name, "passed", "", {"loss": 2}) for name in ("both", "never")}
    mine["worse"] = Row("worse", "failed", "why", {"torch": 1})
    assert [(row.test, row.outcome) for row in compare(stock, mine)] == [
        ("worse", "failed"),
        ("gone", "no record"),
    ]
    mine["partly"] = Row("partly", "passed", "", {"torch": 1, "step": 1})
    assert [len(part) for part in share(mine)] == [2, 1, 1]


def test_nothing_but_the_import_is_changed() -> None:
    script = "from transformers import (\n    AutoConfig,\n    Trainer,\n)\nimport os\nTrainer()\n"
    assert change_import(script).splitlines() == [
        "from transformers import (",
        "    AutoConfig,",
        "    Trainer,",
        ")",
        "from fuseline import Trainer",
        "import os",
        "Trainer()",
    ]
    assert change_import("from transformers import AutoConfig\n") == "from transformers import AutoConfig\n"


@pytest.mark.parametrize(("campaign", "option"), [(stock_trainer, "--tests"), (example_scripts, "--scripts")])
def test_what_is_missing_is_said_with_the_way_to_provide_it(
    campaign: object,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for given in ([], [option, str(tmp_path)]):
        monkeypatch.setattr(sys, "argv", ["campaign", *given])
        assert campaign.main() == 2  # type: ignore[attr-defined]
        assert "not fetched" in capsys.readouterr().err
