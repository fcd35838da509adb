"""Every block of every document is run, or says why not."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from unittest import SkipTest

import pytest
import stage
from documents import ROOT, SHOWN, blocks, documents, file_name, parse, run_command

from fuseline.tools.campaigns.distributed import DEEPSPEED

SKIP = re.compile(r"<!-- skip: next (.+) -->")
PAGES = [p for p in documents() if p.parent.name != "reference"]
WITH_BLOCKS = [p for p in PAGES if any(language not in SHOWN for _, language, _ in blocks(p))]
WITH_SLOW_BLOCKS = [p for p in PAGES if "skip: next if(fast" in p.read_text()]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def kept(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is made once, in one folder for all processes of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "stage"
    monkeypatch.setenv("FUSELINE_CACHE", str(folder / "cache"))
    return folder


def run(path: Path, folder: Path, kept: Path, *, fast: bool) -> dict[str, object]:
    """Run the blocks of a document in a folder; gives the names that they leave behind."""
    document = parse(path)
    document.namespace |= {**stage.set_up(folder, kept, path.read_text()), "fast": fast}
    for example in document.examples():
        with suppress(SkipTest):  # the reasons are counted below
            example.evaluate()
    return document.namespace


@pytest.mark.native
@pytest.mark.parametrize("path", WITH_BLOCKS, ids=_name)
def test_blocks(path: Path, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(path, tmp_path, kept, fast=True)
    if path.name == "distributed.md":
        assert names["zero"] == DEEPSPEED, "what the page shows is not what `make distributed` runs"


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("path", WITH_SLOW_BLOCKS, ids=_name)
def test_slow_blocks(path: Path, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(path, tmp_path, kept, fast=False)


@pytest.mark.native
def test_the_pass_of_contributing_stands_its_cases(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the repository it is found by itself; here it is a plugin."""
    monkeypatch.chdir(tmp_path)
    run(ROOT / "CONTRIBUTING.md", tmp_path, kept, fast=True)
    test = "fuseline passes test tests/golden/fuse_double_neg.onnxtxt"
    printed = run_command(f"{test} --plugin passes/cleanup/fuse_double_neg.py --update")
    assert "updated fuse_double_neg.onnxtxt positive\n1 case, 0 failed" in printed
    assert "y = Identity (x)" in Path("tests/golden/fuse_double_neg.onnxtxt").read_text()


def test_few_blocks_are_not_run() -> None:
    reasons = [reason for page in PAGES for reason in SKIP.findall(page.read_text())]
    never = [reason for reason in reasons if not reason.startswith("if(fast, ")]
    assert len(never) <= 1, never
    assert len(reasons) - len(never) <= 6, reasons


def test_few_blocks_are_pictures() -> None:
    shown = [
        f"{_name(page)}: {language}"
        for page in PAGES
        for _, language, source in blocks(page)
        if language in SHOWN and not file_name(source)
    ]
    assert sorted(shown) == [
        "CONTRIBUTING.md: text",
        "docs/diff-schema.md: jsonc",
        "docs/diff-schema.md: jsonc",
        *["docs/index.md: {toctree}"] * 4,
    ]


def test_the_readme_fits_two_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110


@pytest.mark.parametrize(
    "block, message",
    [
        ("```python\nraise ValueError('as is')\n```\n", "as is"),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected"),
        ("```bash\nfalse\n```\n", "ends with 1"),
        ("```bash\ntrue  # exit 1\n```\n", "ends with 0"),
        ("```console\n$ echo one\ntwo\n```\n", "and not"),
        ("```bash\nmake nothing-of-the-kind\n```\n", "no target"),
        ("```bash\npip install 'fuseline[nothing]'\n```\n", "nothing"),
        ("```fortran\nEND\n```\n", "no language that is run"),
        ("```\nplain\n```\n", "no language that is run"),
    ],
)
def test_a_block_that_lies_is_found(
    block: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(block)
    (example,) = parse(page).examples()
    with pytest.raises((AssertionError, ValueError), match=message):
        example.evaluate()


def test_a_transcript_may_leave_out_what_varies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# a/b.py\nprint(7)\n```\n\n```console\n$ python a/b.py && echo 8 ms\n7\n... ms\n```\n"
    )
    for example in parse(page).examples():
        example.evaluate()
    assert (tmp_path / "a" / "b.py").is_file()
