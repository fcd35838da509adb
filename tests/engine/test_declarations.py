"""Passes that are declared wrongly are refused when they are registered, and what they claim is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuseline.engine.errors import FuselineError, PassError
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.patterns import Builder, Fusion, Op
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.registry import Registry, registry
from fuseline.engine.rewriting.rewriter import Rewriter

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[N,4] x) => (float[N,4] y) { a = Mul(x, x) y = Neg(a) }
"""
WRONG: dict[str, dict[str, Any]] = {
    "'Bad Name' is no name for a pass": {"name": "Bad Name"},
    "has no docstring saying before → after": {"__doc__": None},
    "has the phase 'training'": {"phase": "training"},
    r"requires \('differentiated',\), which is no tuple of properties": {"requires": ("differentiated",)},
    "ensures <Property.TRAINING: 'training'>": {"ensures": Property.TRAINING},
    "does nothing": {"run": Pass.run},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_declaration_is_refused(message: str) -> None:
    body = {"__doc__": "x → x", "name": "test-wrong", "run": lambda self, model, rewriter: 0}
    wrong = type("Wrong", (Pass,), body | WRONG[message])
    with pytest.raises(FuselineError, match=message):
        Registry().register(wrong)


def test_a_plugin_cannot_take_a_name_that_is_taken(tmp_path: Path) -> None:
    plugin = tmp_path / "taken.py"
    plugin.write_text(
        "from fuseline import Pass\n\n\nclass Mine(Pass):\n    'x → y'\n\n    name = 'fold-constants'\n\n"
        "    def run(self, model, rewriter):\n        return 0\n"
    )
    with pytest.raises(
        FuselineError, match=r"'fold-constants' is provided twice: by fuseline.*taken.py:Mine"
    ):
        Registry().load_plugin(plugin)
    assert registry["fold-constants"].__module__.startswith("fuseline.")


def test_a_pass_says_how_much_it_changed() -> None:
    class Silent(Pass):
        """x → x"""

        name = "test-silent"

        def run(self, model: Model, rewriter: Rewriter) -> int:
            return None  # type: ignore[return-value]

    with pytest.raises(PassError, match="'test-silent' returned None, not how much it changed"):
        Pipeline.of(Silent()).run(Model.from_text(MODEL))


def test_a_value_is_replaced_by_one_of_its_type_though_no_file_says_it() -> None:
    class Rounded(Fusion):
        """x·x → Cast(x)"""

        name = "test-rounded"

        def match(self, op: Op, x: Any) -> Any:
            return op.Mul(x, x)

        def replace(self, op: Builder, x: Any) -> Any:
            return op.Cast(x, to=7)

    model = Model.from_text(MODEL)
    assert next(iter(model.graph)).outputs[0].dtype is None
    with pytest.raises(PassError, match=r"'a' is FLOAT, but what takes its place, .*, is INT64"):
        Pipeline.of(Rounded()).run(model)
