"""A bar chart with intervals, as an SVG that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from fuseline.tools.measuring.intervals import Interval

__all__ = ["Bar", "Panel", "bars"]

_LABELS, _WIDTH, _ROW, _HEAD, _NUMBERS = 220, 420, 24, 40, 150
_LINE, _LETTERS = 17, 118


@dataclass(frozen=True)
class Bar:
    """A label, where the bar ends, and what is written behind it; a pale one says nothing certain."""

    label: str
    value: Interval
    text: str
    pale: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart: its title, its bars from top to bottom, and what it is about in smaller letters."""

    title: str
    bars: Sequence[Bar]
    about: str = ""

    @property
    def lines(self) -> list[str]:
        return wrap(self.about, _LETTERS)

    @property
    def head(self) -> int:
        return _HEAD + _LINE * len(self.lines)


def bars(panels: Sequence[Panel]) -> str:
    """All panels below each other."""
    drawn, top = [], 8.0
    for panel in panels:
        drawn.append(_panel(panel, top))
        top += panel.head + _ROW * len(panel.bars) + 16
    width = _LABELS + _WIDTH + _NUMBERS
    label = html.escape("; ".join(panel.title for panel in panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top:.0f}" width="{width}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{label}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(drawn)}</svg>\n'
    )


def _panel(panel: Panel, top: float) -> str:
    low = min((min(b.value.low, 0.0) for b in panel.bars), default=0.0)
    high = max((max(b.value.high, 0.0) for b in panel.bars), default=0.0)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return _LABELS + _WIDTH * (value - low) / span

    rows = []
    for index, bar in enumerate(panel.bars):
        rows.append(_bar(bar, top + panel.head + index * _ROW, place))
    bottom = top + panel.head + _ROW * len(panel.bars)
    axis = f'<path d="M{place(0.0):.1f} {top + panel.head - 6:.1f}V{bottom:.1f}" stroke="#888"/>'
    title = (
        f'<text x="8" y="{top + 20:.1f}" font-weight="600" font-size="14">{html.escape(panel.title)}</text>'
    )
    about = "".join(
        f'<text x="8" y="{top + 20 + _LINE * (i + 1):.1f}" fill="#60646c">{html.escape(line)}</text>'
        for i, line in enumerate(panel.lines)
    )
    return title + about + axis + "".join(rows)


def _bar(bar: Bar, y: float, place: Callable[[float], float]) -> str:
    colour = "#b9bbc6" if bar.pale else "#3e63dd" if bar.value.middle >= 0 else "#e5484d"
    middle = y + _ROW / 2 - 2
    zero, end = place(0.0), place(bar.value.middle)
    low, high = place(bar.value.low), place(bar.value.high)
    whisker = f"M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"
    return (
        f'<text x="{_LABELS - 8}" y="{middle + 4:.1f}" text-anchor="end">{html.escape(bar.label)}</text>'
        f'<rect x="{min(zero, end):.1f}" y="{y + 2:.1f}" width="{abs(end - zero):.1f}" height="{_ROW - 8}" '
        f'rx="2" fill="{colour}"/><path d="{whisker}" stroke="#1c2024" fill="none"/>'
        f'<text x="{max(high, end, zero) + 8:.1f}" y="{middle + 4:.1f}">{html.escape(bar.text)}</text>'
    )
