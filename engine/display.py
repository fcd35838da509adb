"""How models, diffs, results and reports look in a notebook."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fuseline.engine.diff.text import Line, lines
from fuseline.engine.report import page, report_of_model

if TYPE_CHECKING:
    from fuseline.engine.diff import ModelDiff
    from fuseline.engine.manager import Result
    from fuseline.engine.model import Model

__all__ = ["diff_html", "model_html", "result_html", "text_html"]

_COLOURS = {"added": "#1a7f3722", "removed": "#cf222e22", "changed": "#9a670022"}
_FRAME = (
    '<iframe style="width:100%;height:560px;border:1px solid #8884;border-radius:8px" srcdoc="{}"></iframe>'
)


def model_html(model: Model) -> str:
    """The model as `fuseline view` shows it."""
    return _FRAME.format(html.escape(page(report_of_model(model, model.graph.name or "model"))))


def diff_html(diff: ModelDiff) -> str:
    """The lines of the text form, coloured."""
    return f'<pre style="overflow-x:auto">{"".join(map(_line, lines(diff)))}</pre>'


def _line(line: Line) -> str:
    colour = _COLOURS.get(line.kind)
    style = f' style="background:{colour}"' if colour else ""
    return f"<div{style}>{html.escape(str(line))}</div>"


def text_html(text: str) -> str:
    """What is said in words, line by line."""
    return f'<pre style="white-space:pre-wrap">{html.escape(text)}</pre>'


def result_html(result: Result) -> str:
    """The passes that changed something."""
    rows = "".join(
        f"<tr><td>{r.step.index}</td><td>{html.escape(r.name)}</td><td>{r.changes}</td>"
        f"<td>{r.nodes_before} → {r.nodes_after}</td><td>{r.seconds * 1e3:.1f}</td></tr>"
        for r in result.records
        if r.changes or r.reverted
    )
    head = "<tr><th>#</th><th>pass</th><th>changes</th><th>nodes</th><th>ms</th></tr>"
    return f"<table>{head}{rows}</table>"
