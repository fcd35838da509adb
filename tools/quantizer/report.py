"""The behaviour report: JSON for programs, one standalone HTML page for people."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from fuseline.engine.files import write_text

__all__ = ["as_html", "write_report"]

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.5em 0 1.5em}
td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.bad{color:#b00}.good{color:#070}
.bar{background:#9bc;height:.7em;display:inline-block}"""


def write_report(path: Path, report: dict[str, Any]) -> None:
    """HTML by its suffix, JSON otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = as_html(report) if path.suffix in (".html", ".htm") else json.dumps(report, indent=2) + "\n"
    write_text(path, text)


def as_html(report: dict[str, Any]) -> str:
    parts = [_overview(report)]
    if report.get("failed"):
        items = "".join(f"<li class=bad>{html.escape(f)}</li>" for f in report["failed"])
        parts.append(f"<h2>Criteria not met</h2><ul>{items}</ul>")
    for title, key in (("By class", "classes"), ("By slice", "slices")):
        if report.get(key):
            parts.append(f"<h2>{title}</h2>" + _accuracies(report[key]))
    if report.get("flips"):
        parts.append(_flips(report["flips"]))
    if report.get("thresholds"):
        parts.append(_thresholds(report["thresholds"]))
    if report.get("layers"):
        parts.append(_layers(report["layers"]))
    if report.get("left_in_float"):
        rows = [[name, reason] for name, reason in report["left_in_float"].items()]
        parts.append("<h2>Left in float</h2>" + _table(["node", "why"], rows))
    title = f"Quantized: {html.escape(str(report.get('model', '')))}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{''.join(parts)}</html>\n"
    )


def _overview(report: dict[str, Any]) -> str:
    rows: list[list[Any]] = [["examples", f"{report['examples']} ({report['data']})"]]
    if "accuracy" in report:
        row = report["accuracy"]
        rows.append(
            ["accuracy", f"{row['float']:.2%} → {row['quantized']:.2%} ({row['points']:+.2f} points)"]
        )
    if "agreement" in report:
        rows.append(["same prediction", f"{report['agreement']:.2%}"])
    rows.append(["signal to noise of the output", _decibels(report["signal_to_noise_db"])])
    if "size_ratio" in report:
        rows.append(["size of the file", f"{report['size_ratio']:.3f}×"])
    if "speed" in report:
        rows.append(["speed on one batch", f"{report['speed']:.2f}×"])
    return _table(["", ""], rows)


def _accuracies(rows: list[dict[str, Any]]) -> str:
    content = [
        [r["name"], r["examples"], f"{r['float']:.2%}", f"{r['quantized']:.2%}", f"{r['points']:+.2f}"]
        for r in sorted(rows, key=lambda r: r["points"])
    ]
    return _table(["", "examples", "float", "quantized", "points"], content)


def _flips(flips: dict[str, Any]) -> str:
    columns = ["example", "label", "float", "quantized", "probability_float", "probability_quantized"]
    columns.append("content")
    rows = [[_number(e.get(c, "")) for c in columns] for e in flips["examples"]]
    heading = f"<h2>Flipped predictions: {flips['count']} ({flips['share']:.2%})</h2>"
    return heading + (_table([c.replace("_", " ") for c in columns], rows) if rows else "")


def _thresholds(rows: list[dict[str, Any]]) -> str:
    content = [
        [r["threshold"], f"{r['float']:.2%}", f"{r['quantized']:.2%}", f"{r['changed']:.2%}"] for r in rows
    ]
    return "<h2>Decisions at thresholds</h2>" + _table(["at least", "float", "quantized", "changed"], content)


def _layers(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        decibels = row["signal_to_noise_db"]
        width = 0 if decibels is None else max(0, min(60, decibels)) * 4
        bar = f"<span class=bar style='width:{width:.0f}px'></span>"
        lines.append(
            f"<tr><td>{html.escape(row['value'])}<td>{_decibels(decibels)}<td style='text-align:left'>{bar}"
        )
    return f"<h2>Noise by layer</h2><table><tr><th>value<th>signal to noise<th>{''.join(lines)}</table>"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    top = "".join(f"<th>{html.escape(h)}" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}" for c in row) for row in rows)
    return f"<table><tr>{top}{body}</table>"


def _decibels(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.1f} dB"


def _number(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value
