"""Links between documents, and to their headings, lead somewhere."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from documents import ROOT, documents
from markdown_it import MarkdownIt
from markdown_it.token import Token

WRITTEN_BY_THE_SITE = ROOT / "docs" / "reference"
PAGES = [p for p in documents() if WRITTEN_BY_THE_SITE not in p.parents]


@cache
def _tokens(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text())


def _links(path: Path) -> list[str]:
    inner = [child for token in _tokens(path) for child in token.children or ()]
    found = [
        child.attrGet("href") or child.attrGet("src")
        for child in inner
        if child.type in ("link_open", "image")
    ]
    return [str(link) for link in found]


def _anchors(path: Path) -> set[str]:
    """The anchors that GitHub and the site give to headings."""
    tokens = _tokens(path)
    titles = [b.content for a, b in pairwise(tokens) if a.type == "heading_open"]
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def _dead(path: Path) -> list[str]:
    dead = []
    for link in _links(path):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        place = (path.parent / target).resolve() if target else path
        if not place.is_file() or (anchor and anchor not in _anchors(place)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(path: Path) -> None:
    assert not _dead(path)


def test_every_page_is_reached_from_the_index() -> None:
    listed = re.findall(r"(?m)^(?:.+<)?([\w./-]+)>?$", (ROOT / "docs" / "index.md").read_text())
    named = {(ROOT / "docs" / f"{name}.md").resolve() for name in listed}
    assert set(PAGES) - named == {ROOT / "docs" / "index.md"}


def test_a_dead_link_and_a_dead_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One two\n\n[a](#one-two) [b](#one) [c](page.md#one-two) [d](other.md) [e](https://x.y)\n"
    )
    assert _dead(page) == ["#one", "other.md"]
