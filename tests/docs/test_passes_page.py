"""docs/passes.md is what the declarations say."""

from __future__ import annotations

from pathlib import Path

from fuseline.engine.registry import registry
from fuseline.tools import catalogue

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / catalogue.PAGE).read_text() == catalogue.markdown(), "run `make docs`"


def test_an_option_has_its_choices_and_its_help() -> None:
    described = {o["name"]: o for o in catalogue.describe(registry["insert-optimizer"])["options"]}
    assert described["kind"]["choices"] == ["adamw", "sgd"]
    assert described["momentum"]["help"] == "For SGD: keep a momentum buffer."
