"""Memory as drawings: what is alive over a run, stacked by origin, and what plans cost in time."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

from fuseline.engine.memory.origins import Origin
from fuseline.engine.memory.simulation import Simulation

__all__ = ["curve_picture", "page", "picture", "stacked"]

_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 150, 60, 26
_COLOURS = {
    Origin.SAVED: "#3e63dd",
    Origin.TEMPORARY: "#8b8d98",
    Origin.GRADIENT: "#e5484d",
    Origin.OUTPUT: "#30a46c",
    Origin.WORKSPACE: "#f5a524",
}


def picture(plans: Sequence[tuple[str, Simulation]]) -> str:
    """An SVG with a legend."""
    highest = max((plan.peak for _, plan in plans), default=0) or 1
    panels = [
        _panel(name, plan, highest, _TOP + index * (_HEIGHT + 44)) for index, (name, plan) in enumerate(plans)
    ]
    height = _TOP + len(plans) * (_HEIGHT + 44) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="live memory over a run">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(panels)}{_legend(height - 12)}</svg>\n'
    )


def _panel(name: str, plan: Simulation, highest: int, top: float) -> str:
    rows = plan.by_origin()
    step = _WIDTH / max(len(rows) - 1, 1)
    below = [0] * len(rows)
    areas = []
    for origin, colour in _COLOURS.items():
        above = [base + row.get(origin, 0) for base, row in zip(below, rows, strict=True)]
        if above != below:
            points = [*enumerate(above), *reversed(list(enumerate(below)))]
            places = " ".join(
                f"{_LEFT + i * step:.1f},{top + _HEIGHT * (1 - value / highest):.1f}" for i, value in points
            )
            areas.append(f'<polygon points="{places}" fill="{colour}" fill-opacity=".8"/>')
        below = above
    title = f"{html.escape(name)}: peak {plan.peak / 1e6:.1f} MB"
    axis = f'<path d="M{_LEFT} {top}V{top + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#888"/>'
    scale = f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{highest / 1e6:.0f} MB</text>'
    return f'<text x="{_LEFT}" y="{top - 8}" font-weight="600">{title}</text>{axis}{scale}{"".join(areas)}'


def curve_picture(points: Sequence[tuple[str, int, float]], best: Sequence[str]) -> str:
    """(plan, peak, extra time) as an SVG; those among `best` are joined."""
    highest = max((peak for _, peak, _ in points), default=0) or 1
    longest = max((extra for _, _, extra in points), default=0) or 0.01

    def place(peak: int, extra: float) -> tuple[float, float]:
        return _LEFT + max(extra, 0) / longest * _WIDTH * 0.8, _TOP + _HEIGHT * (1 - peak / highest)

    marks = []
    for name, peak, extra in points:
        x, y = place(peak, extra)
        fill = "#3e63dd" if name in best else "#8b8d98"
        told = f"{name}: {peak / 1e6:.1f} MB, {extra:+.0%} time"
        label = f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{html.escape(name)}</text>' if name in best else ""
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}">'
            f"<title>{html.escape(told)}</title></circle>{label}"
        )
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(p, e) for n, p, e in points if n in best))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {_TOP + _HEIGHT + 30}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" '
        f'aria-label="memory against extra time">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{_LEFT}" y="16" font-weight="600">peak against extra time</text>'
        f'<path d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#888"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{highest / 1e6:.0f} MB</text>'
        f'<text x="{_LEFT + 0.8 * _WIDTH}" y="{_TOP + _HEIGHT + 16}" '
        f'text-anchor="middle">{longest:+.0%}</text>'
        f'<polyline points="{line}" fill="none" stroke="#3e63dd"/>{"".join(marks)}</svg>\n'
    )


def stacked(drawings: Sequence[str]) -> str:
    """Drawings of one width as one SVG, below each other."""
    placed, top = [], 0
    for drawing in drawings:
        found = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing)
        assert found is not None
        width, height = int(found[1]), int(found[2])
        place = f'<svg y="{top}" width="{width}" height="{height}"'
        placed.append(drawing.strip().replace("<svg", place, 1))
        top += height
    whole = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" role="img" '
    return whole + f'aria-label="memory of a run">{"".join(placed)}</svg>\n'


def page(title: str, drawings: Sequence[str], tables: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """One standalone HTML page: the drawings, and tables by caption, whose first row is their head."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font-family:system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td,th{text-align:left;padding:.2rem .8rem}caption{text-align:left;font-weight:600;padding:.6rem 0}"
        "table{margin-bottom:1.5rem;display:block;overflow-x:auto}svg{width:100%}</style>"
        f"<h1>{html.escape(title)}</h1>{''.join(drawings)}"
        f"{''.join(_table(caption, rows) for caption, rows in tables.items())}</html>\n"
    )


def _table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    cells = [
        "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
    ]
    return f"<table><caption>{html.escape(caption)}</caption>{''.join(cells)}</table>"


def _legend(y: float) -> str:
    parts = []
    for index, (origin, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + index * 140
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{origin}</text>')
    return "".join(parts)
