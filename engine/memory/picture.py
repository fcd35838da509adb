"""The live memory over a run as a drawing: one panel a plan, stacked by origin, on one scale."""

from __future__ import annotations

import html
from collections.abc import Sequence

from fuseline.engine.memory.origins import Origin
from fuseline.engine.memory.simulation import Simulation

__all__ = ["picture"]

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


def _legend(y: float) -> str:
    parts = []
    for index, (origin, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + index * 140
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{origin}</text>')
    return "".join(parts)
