"""A diff as one HTML page that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterator

from fuseline.engine.diff.result import ModelDiff
from fuseline.engine.diff.text import Line, lines

__all__ = ["to_html"]

_STYLE = """
:root { color-scheme: light dark; --added: #1a7f3718; --removed: #cf222e18; --changed: #9a670018; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h1 small { font-weight: normal; opacity: .7; display: block; font-size: .9rem; }
pre { font: 12.5px/1.55 ui-monospace, monospace; overflow-x: auto; border: 1px solid #8884;
      border-radius: 6px; padding: .6rem 0; }
pre span { display: block; padding: 0 .8rem; white-space: pre; }
.added { background: var(--added); } .removed { background: var(--removed); }
.changed { background: var(--changed); } .hunk { color: #0969da; } .header { font-weight: 600; }
.note { display: inline; opacity: .6; font-style: italic; padding: 0; }
nav label { margin-right: 1rem; }
body:has(#same:not(:checked)) .same { display: none; }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body><h1>{title}<small>{summary}</small></h1>
<nav><label><input type="checkbox" id="same" checked> unchanged neighbours</label></nav>
<pre>{body}</pre></body></html>
"""


def to_html(diff: ModelDiff, *, title: str, context: int = 3) -> str:
    """The same lines as the text form, coloured; neighbours can be hidden."""
    first, *rest = lines(diff, context=context)
    return _PAGE.format(
        title=html.escape(title),
        style=_STYLE,
        summary=html.escape(first.text),
        body="".join(_spans(rest)) or "<span>equal</span>",
    )


def _spans(shown: list[Line]) -> Iterator[str]:
    for line in shown:
        note = f'<span class="note">  {html.escape(line.note)}</span>' if line.note else ""
        body = html.escape(str(Line(line.kind, line.text, depth=line.depth)))
        yield f'<span class="{line.kind}">{body}{note}</span>'
