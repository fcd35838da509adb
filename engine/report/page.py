"""The page itself: markup, style, scripts and the packed data in one file that opens from disk."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fuseline.engine.outputs import refuse_special_file

__all__ = ["page", "partial", "write_page"]

_SCRIPTS = (
    *("element", "text", "history", "arrangement", "layout", "graph", "drawing"),
    *("colours", "search", "panels", "overview", "app"),
)


def page(data: Mapping[str, Any]) -> str:
    """One self-contained HTML document; everything that comes from the model is data, never markup."""
    assets = resources.files("fuseline.engine.report") / "assets"
    script = "\n".join((assets / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    packed = gzip.compress(json.dumps(data, separators=(",", ":"), default=str).encode(), 6, mtime=0)
    parts = {
        "title": html.escape(str(data["title"])),
        "style": (assets / "report.css").read_text(encoding="utf-8"),
        "script": f'"use strict";\n(() => {{\n{script}\n}})();',
        "data": base64.b64encode(packed).decode(),
    }
    text = (assets / "report.html").read_text(encoding="utf-8")
    for name, content in parts.items():
        text = text.replace(f"<!--{name}-->", content, 1)
    return text


def partial(path: Path) -> Path:
    """The name that the page has while it is written."""
    return path.with_name(f".{path.name}.partial")


def write_page(data: Mapping[str, Any], path: Path) -> None:
    """Write the page under a temporary name, then rename it."""
    refuse_special_file(path)
    temporary = partial(path)
    try:
        temporary.write_text(page(data), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
