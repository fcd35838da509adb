"""A profile as a flame chart: modules hang below the modules they belong to, as wide as they take time."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuseline.tools.measuring.profile import Profile

__all__ = ["flame"]

_WIDTH, _ROW, _HEAD = 1160.0, 20, 34
_LETTER = 6.4
_NARROWEST = 0.4
"""Pixels below which nothing is drawn."""


@dataclass
class _Frame:
    """A module or an operator in it, and the seconds inside."""

    label: str
    seconds: float = 0.0
    inside: dict[str, _Frame] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((frame.depth() for frame in self.inside.values()), default=0)


def flame(profile: Profile) -> str:
    """An SVG; each frame says its share when pointed at."""
    root = _Frame("one run")
    for node in profile.nodes:
        path = [*(node.place.split(".") if node.place else ["(no module)"]), node.op]
        frame = root
        frame.seconds += node.seconds
        for part in path:
            frame = frame.inside.setdefault(part, _Frame(part))
            frame.seconds += node.seconds
    height = _HEAD + _ROW * root.depth() + 10
    title = html.escape(f"{profile.model}: {profile.seconds * 1e3:.2f} ms a run, {len(profile.nodes)} nodes")
    frames = "".join(_drawn(root, 10.0, _HEAD, _WIDTH, root.seconds or 1.0, root.label))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 20:.0f} {height}" '
        f'font-family="system-ui, sans-serif" font-size="11" role="img" aria-label="{title}">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="10" y="22" font-size="14" font-weight="600">{title}</text>{frames}</svg>\n'
    )


def _drawn(frame: _Frame, x: float, y: float, width: float, whole: float, path: str) -> Iterator[str]:
    if width < _NARROWEST:
        return
    share = f"{path}: {frame.seconds * 1e3:.3f} ms, {100 * frame.seconds / whole:.1f} %"
    room = int((width - 6) / _LETTER)
    label = frame.label if len(frame.label) <= room else frame.label[: room - 1] + "…" if room > 3 else ""
    hue = zlib.crc32(frame.label.encode()) % 360
    yield (
        f"<g><title>{html.escape(share)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.5, 0.4):.2f}" '
        f'height="{_ROW - 1}" fill="hsl({hue} 60% 80%)"/>'
        f'<text x="{x + 3:.2f}" y="{y + 14}" fill="#1c2024">{html.escape(label)}</text></g>'
    )
    for inner in sorted(frame.inside.values(), key=lambda f: -f.seconds):
        share_of = width * inner.seconds / frame.seconds if frame.seconds else 0.0
        yield from _drawn(inner, x, y + _ROW, share_of, whole, f"{path} / {inner.label}")
        x += share_of
