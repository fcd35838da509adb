"""A document as a session: its blocks are run one after another, in a folder of their own.

What is done with a block can be seen in the block itself:

- a first line that names a file (`# my_passes.py`, `// cases.onnxtxt`) makes it that file;
- `python` is executed with the names of the blocks before it, `>>>` with the output that it shows;
- `bash` is run command by command, each with the exit code that its comment states (`# exit 1`), else 0;
- `console` is that with the output below `$ command`, in which `...` stands for anything;
- `text`, `jsonc` and a directive of the site (`{toctree}`) are to be looked at, and counted.

`<!-- skip: next "why" -->` in front of a block says why it is not run. What cannot be done inside a test
(`make`, `pip`) is checked by its words: the target or the extra exists.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

__all__ = ["ROOT", "SHOWN", "blocks", "documents", "file_name", "make_targets", "parse", "run_command"]

ROOT = Path(__file__).parents[2]
SHOWN = ("text", "jsonc", "{toctree}")
"""Languages of blocks that are no programs."""

_FENCES = FencedCodeBlockLexer(r"[^\n]*")
_FILE = re.compile(r"(?:#|//) ([\w./-]+\.\w+)\n")
_EXIT = re.compile(r"#.*\bexit (\d+)")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documents() -> list[Path]:
    """Everything that is written for people."""
    return sorted([*ROOT.glob("*.md"), ROOT / "kernels" / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line, the language and the text of every fenced block."""
    text = path.read_text()
    for region in _FENCES(Document(text, str(path))):
        line = text.count("\n", 0, region.start) + 1
        yield line, region.lexemes["language"], region.lexemes["source"]


def file_name(source: str) -> str:
    """The file that a block is, or nothing."""
    found = _FILE.match(source)
    return found[1] if found else ""


def parse(path: Path) -> Document:
    """The document with its blocks as examples."""
    document: Document = Sybil(parsers=[_blocks, SkipParser()]).parse(path)
    return document


def _blocks(document: Document) -> Iterable[Region]:
    in_doctest = DocTestStringParser(DocTestEvaluator(_FLAGS))
    for region in _FENCES(document):
        language, source = region.lexemes["language"], region.lexemes["source"]
        if language == "python" and source.startswith(">>>"):
            for found in in_doctest(source, document.path):
                found.adjust(region, source)
                yield found
            continue
        region.parsed = source
        region.evaluator = _write if file_name(source) else _evaluator(language)
        yield region


def _evaluator(language: str) -> Callable[[Example], Any]:
    known: dict[str, Callable[[Example], Any]] = {
        "python": PythonEvaluator(),
        "bash": _run_commands,
        "console": _run_transcript,
    }
    return _look_at if language in SHOWN else known.get(language, _refuse)


def _look_at(example: Example) -> None:
    """A picture, or what a format looks like."""


def _refuse(example: Example) -> str:
    return "this block is in no language that is run; give it one, or the name of its file in its first line"


def _write(example: Example) -> None:
    path = Path(file_name(example.parsed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(example.parsed)


def _run_commands(example: Example) -> None:
    for command in _joined(example.parsed).splitlines():
        if command.strip() and not command.startswith("#"):
            run_command(command)


def _run_transcript(example: Example) -> None:
    for part in re.split(r"(?m)^\$ ", _joined(example.parsed))[1:]:
        command, _, expected = part.partition("\n")
        printed = run_command(command)
        wanted = "\n".join(line.rstrip() for line in expected.splitlines()).strip() + "\n"
        if not doctest.OutputChecker().check_output(wanted, printed, _FLAGS):
            raise AssertionError(f"{command}\nprinted\n{printed}\nand not\n{wanted}")


def _joined(text: str) -> str:
    return re.sub(r"\\\n\s*", "", text)


def run_command(command: str) -> str:
    """What a command prints, the exit code being the one it states."""
    words = shlex.split(command, comments=True)
    if words[0] in _BY_WORDS:
        _BY_WORDS[words[0]](words[1:])
        return ""
    stated = _EXIT.search(command)
    here = {"PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    # No browser is opened; tables have one width everywhere.
    here |= {"BROWSER": "true", "COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **here},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=900,
    )
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip() + "\n"
    expected = int(stated[1]) if stated else 0
    assert done.returncode == expected, f"{command}\nends with {done.returncode}:\n{printed}"
    return printed


def make_targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def _make(words: list[str]) -> None:
    targets = [w for w in words if "=" not in w]
    missing = set(targets) - make_targets()
    assert targets, "make without a target"
    assert not missing, f"the Makefile has no target {missing}"


def _pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.search(r"(?:fuseline|\.)\[([\w,]+)\]", " ".join(words))
    assert words[0] == "install"
    assert named is not None, f"pip {words} is not about fuseline"
    assert set(named[1].split(",")) <= set(project["optional-dependencies"]), words


def _activate(words: list[str]) -> None:
    # `make` creates this folder, and every environment has this file.
    assert words == [".venv/bin/activate"], words


_BY_WORDS: dict[str, Callable[[list[str]], None]] = {
    "make": _make,
    "pip": _pip,
    "source": _activate,
}
