"""Passes that are declared wrongly are refused when they are registered, and what they claim is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from fuseline.engine.errors import FuselineError, PassError, PipelineError
from fuseline.engine.model import Model
from fuseline.engine.operators import lookup, records
from fuseline.engine.operators.registry import forget
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
    "has no method 'run'": {"run": Pass.run},
    "preserves 5, which is no tuple of analyses": {"preserves": 5},
    "produces 'Gelu', which is no tuple of operators": {"produces": "Gelu"},
    "has the counterpart 5": {"counterpart": 5, "phase": "inference"},
    "has the counterpart 'test-other'": {"counterpart": "test-other"},
    "sets 'require', which declares nothing": {"require": (Property.TRAINING,)},
    "sets 'phse', which declares nothing": {"phse": "inference"},
}
WRONG_OPTIONS: dict[str, tuple[str, Any]] = {
    "has the option 'phase', which is something else of every pass": ("phase", (str, "inference")),
    "has the option 'n' with the default 'a', which is no int": ("n", (int, "a")),
    r"has the option 'n' with the default 'c', which is no Literal\['a', 'b'\]": (
        "n",
        (Literal["a", "b"], "c"),
    ),
    "has the option 'n' without a default": ("n", (int,)),
    r"has the option 'n' of the type frozenset\[str\]": ("n", (frozenset[str], frozenset())),
    r"has the option 'n' of the type tuple\[int, int\]": ("n", (tuple[int, int], (1, 2))),
    "whose type cannot be read: name 'Nope' is not defined": ("n", ("Nope", 1)),
    "has the option 'größe', which no pipeline's text can name": ("größe", (int, 1)),
}


@pytest.mark.parametrize("message", WRONG_OPTIONS)
def test_a_wrong_option_is_refused(message: str) -> None:
    name, (type_, *default) = WRONG_OPTIONS[message]
    body = {"__doc__": "x → x", "name": "test-wrong", "run": lambda self, model, rewriter: 0}
    given = {name: default[0]} if default else {}
    wrong = type("Wrong", (Pass,), {**body, **given, "__annotations__": {name: type_}})
    with pytest.raises(FuselineError, match=message):
        Registry().register(wrong)


def test_a_pass_has_no_init_of_its_own() -> None:
    with pytest.raises(PassError, match="Wrong has an __init__ of its own"):
        type("Wrong", (Pass,), {"__init__": lambda self: None})


def test_counterparts_exist() -> None:
    for kind in registry:
        assert kind.counterpart is None or kind.counterpart in registry, kind.name


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


PLUGIN = """
from fuseline import Pass
from fuseline.engine.operators import custom, register

register(custom("test.plugin", "Thing", "x", "y"))
"""
LIMITED = """
class Limited(Pass):
    "x → x"

    name = "test-limited"
    limit: int = 1

    def __post_init__(self):
        if self.limit < 1:
            raise ValueError("the limit is below 1")

    def run(self, model, rewriter):
        return 0
"""


def test_a_plugin_may_declare_operators_alone_and_be_loaded_again(tmp_path: Path) -> None:
    plugin, other = tmp_path / "own.py", tmp_path / "other.py"
    plugin.write_text(PLUGIN)
    other.write_text("\n" + PLUGIN)
    mine = Registry()
    try:
        assert mine.load_plugin(plugin) == []
        assert mine.load_plugin(plugin) == []
        with pytest.raises(FuselineError, match=r"other.py:6: .*registered twice: in .*own.py:5, and"):
            mine.load_plugin(other)
        plugin.write_text(PLUGIN + "register(5)\n")
        with pytest.raises(FuselineError, match=r"own.py:6: a int is registered"):
            mine.load_plugin(plugin)
        assert lookup("test.plugin", "Thing") is None
    finally:
        forget(*(o for o in list(records()) if o.domain == "test.plugin"))


def test_options_that_a_pass_refuses_itself_say_where(tmp_path: Path) -> None:
    plugin = tmp_path / "limited.py"
    plugin.write_text("from fuseline import Pass\n" + LIMITED)
    [limited] = registry.load_plugin(plugin)
    try:
        with pytest.raises(PipelineError, match=r"limited.py:11: ValueError: the limit is below 1"):
            Pipeline.parse("test-limited{limit=0}")
    finally:
        del registry._passes[limited.name], registry._providers[limited.name]
