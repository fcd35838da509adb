"""The pages of passes, commands and operators are what the declarations say."""

from __future__ import annotations

from pathlib import Path

from fuseline.engine.operators import records
from fuseline.engine.registry import registry
from fuseline.tools import catalogue, reference

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / catalogue.PAGE).read_text() == catalogue.markdown(), "run `make docs`"


def test_an_option_has_its_choices_and_its_help() -> None:
    described = {o["name"]: o for o in catalogue.describe(registry["insert-optimizer"])["options"]}
    assert described["kind"]["choices"] == ["adamw", "sgd"]
    assert described["momentum"]["help"] == "For SGD: keep a momentum buffer."


def test_every_command_and_its_options_are_on_the_page() -> None:
    page = reference.commands()
    for words in ("## fuseline run", "## fuseline passes explain", "`--browser`, `--no-browser`"):
        assert words in page
    assert "| `--pipeline` | A ready pipeline, a YAML file, or pipeline text. | `inference` |" in page


def test_every_operator_is_on_the_page() -> None:
    page = reference.operators()
    assert not [record.name for record in records() if f"| `{record.name}` |" not in page]
    assert "| `FusedLayerNorm` | x `*R,N`; scale `N`; bias `N?` |" in page
    gelu = next(line for line in page.splitlines() if line.startswith("| `Gelu` |"))
    assert gelu.count("|") == 5
