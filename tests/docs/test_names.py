"""What documents name in passing exists: make targets, commands and their options, modules, files."""

from __future__ import annotations

import importlib
import inspect
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from documents import ROOT, blocks, documents, file_name, make_targets

import fuseline
from fuseline.engine.rewriting.rewriter import MODULE_KEY, SOURCE_KEY
from fuseline.exporters.families.registry import ENTRY_POINT_GROUP
from fuseline.tools.main import app

PAGES = [p for p in documents() if p.parent.name != "reference"]
_CODE = re.compile(r"`([^`\n]+)`")
# Dotted names that are no modules.
_KEYS = (MODULE_KEY, SOURCE_KEY, ENTRY_POINT_GROUP)
_FOLDERS = ("docs/", "tests/", "passes/", "engine/", "kernels/", "exporters/", "tools/", ".ci/")


def _inline(path: Path) -> list[str]:
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", path.read_text())
    return _CODE.findall(text)


@cache
def _commands() -> dict[str, set[str]]:
    """Every command, with its options."""

    def walk(command: Any, path: str) -> dict[str, set[str]]:
        own = {path: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}}
        for name, inner in getattr(command, "commands", {}).items():
            own |= walk(inner, f"{path} {name}")
        return own

    return walk(typer.main.get_command(app), "fuseline")


def _unknown_words(code: str) -> list[str]:
    """What a command line names and the program does not have."""
    command, rest = "fuseline", code.split()[1:]
    while rest and f"{command} {rest[0]}" in _commands():
        command = f"{command} {rest.pop(0)}"
    is_group = any(known.startswith(f"{command} ") for known in _commands())
    wrong = [w for w in rest[:1] if is_group and re.fullmatch(r"[a-z]+", w)]
    return wrong + [w for w in rest if w.startswith("--") and w not in _commands()[command]]


def _missing(code: str) -> list[str]:
    if code.startswith("make "):
        return [w for w in code.split()[1:] if "=" not in w and w not in make_targets()]
    if code.startswith("fuseline "):
        return _unknown_words(code)
    if code.startswith("--") and re.fullmatch(r"--[a-z-]+", code.split()[0]):
        known = {o for options in _commands().values() for o in options} | {"--update-golden", "--cpu"}
        return [] if code.split()[0] in known else [code]
    if re.fullmatch(r"fuseline(\.\w+)+", code):
        return [] if code in _KEYS or _found(code) else [code]
    if code.startswith(_FOLDERS) and re.fullmatch(r"[\w./-]+", code):
        return [] if (ROOT / code).exists() else [code]
    return []


def _found(dotted: str) -> bool:
    """Whether the name is a module, or something in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names(path: Path) -> None:
    made_here = {name for _, _, source in blocks(path) if (name := file_name(source))}
    missing = [word for code in _inline(path) for word in _missing(code) if word not in made_here]
    assert not missing


@pytest.mark.parametrize(
    "code",
    [
        "make no-such-target",
        "fuseline frobnicate",
        "fuseline run --no-such-option",
        "fuseline passes frobnicate",
        "--no-such-option",
        "fuseline.engine.nothing",
        "docs/nothing.md",
    ],
)
def test_what_does_not_exist_is_found(code: str) -> None:
    assert _missing(code)


def test_public_names_say_what_they_are() -> None:
    assert not [name for name in fuseline.__all__ if not inspect.getdoc(getattr(fuseline, name))]


def test_every_option_of_the_trainer_has_its_row() -> None:
    page = (ROOT / "docs" / "trainer.md").read_text()
    rows = set(re.findall(r"(?m)^\| `(\w+)=", page))
    parameters = inspect.signature(fuseline.Trainer.__init__).parameters.values()
    assert rows == {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_picture_of_the_design_shows_folders_that_are_there() -> None:
    drawn = (ROOT / "docs" / "design.svg").read_text()
    texts = [e.text or "" for e in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    named = [text for text in texts if "/" in text]
    assert {"exporters/", "passes/", "kernels/", "engine/operators/"} <= set(named)
    assert not [name for name in named if not (ROOT / name).exists()]
    groups = {p.parent.name for p in (ROOT / "passes").glob("*/*.py")} - {"pipelines"}
    assert groups == {text for text in texts if (ROOT / "passes" / text / "__init__.py").is_file()} & groups
    assert groups <= set(texts)
