"""The results of `bench-finetune` as a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from fuseline.tools.benchmarks.finetune_trainers import ratio

__all__ = ["summary", "write_page"]

_PRECISIONS = ("", " bf16")
_STOCK = ("eager", "sdpa", "compile")
_OPTIMIZERS = {"": "", "+torch": ", torch's optimizer"}
_BAR, _LEFT, _SCALE = 16, 260, 90
_COLOURS = {"": "#2f6fb0", " bf16": "#c2621b"}

_INTRODUCTION = """\
# Training as people do it

Written by `python -m fuseline.tools.benchmarks.finetune --page` from what `make bench-finetune` measured:
real comments, default dropout, clipping at 1.0, AdamW; padded to 128 tokens, to the longest of the batch, and
grouped by length; {threads} threads. Ratios are to the fastest of the stock Trainer's eager, SDPA and
`torch_compile` that was measured in the same precision, with the interval of nine draws of batches in ten.

![How many times as fast as the stock Trainer]({picture})

| | precision | best stock | speed | interval | examples/s | CPU | memory | to stock ONNX Runtime |
|---|---|---|---|---|---|---|---|---|"""


def _rows(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each case, padding and precision that both sides were measured in."""
    for label, found in sorted(results.get("speed", {}).items()):
        for precision, optimizer in product(_PRECISIONS, _OPTIMIZERS):
            ours = found.get(f"fuseline{optimizer}{precision}")
            stock = {name: found[name + precision] for name in _STOCK if name + precision in found}
            if ours is None or not stock:
                continue
            best = min(stock, key=lambda name: mean(stock[name]["seconds"]))
            value, low, high = ratio(stock[best]["seconds"], ours["seconds"])
            yield {
                "label": label.replace(" | ", ", ") + _OPTIMIZERS[optimizer],
                "precision": precision,
                "best": best,
                "rate": 1 / mean(ours["seconds"]),
                "ratio": value,
                "low": low,
                "high": high,
                "cpu": stock[best]["cpu"] / ours["cpu"],
                "memory": _share(ours.get("memory"), stock[best].get("memory")),
                "plain": _against(found.get("onnxruntime"), ours) if not precision else None,
            }


def _share(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def _against(theirs: dict[str, Any] | None, ours: dict[str, Any]) -> float | None:
    return mean(theirs["seconds"]) / mean(ours["seconds"]) if theirs else None


def summary(results: dict[str, Any]) -> list[str]:
    """What the results say, a line each."""
    lines = []
    for row in _rows(results):
        interval = f"{row['ratio']:.2f}× ({row['low']:.2f} … {row['high']:.2f})"
        lines.append(
            f"{row['label']}{row['precision']}: {interval} the stock Trainer with {row['best']}, "
            f"{row['rate']:.1f} examples/s, {1 / row['cpu']:.2f} of its CPU time"
        )
    for name, by_seed in results.get("accuracy", {}).items():
        points = [100 * value for value in by_seed.values()]
        lines.append(f"accuracy of {name}: {mean(points):.2f} ± {pstdev(points):.2f} % ({len(points)} seeds)")
    return lines


def write_page(results: dict[str, Any], path: Path) -> None:
    """The table as Markdown and, beside it, the picture."""
    picture = path.with_suffix(".svg")
    picture.write_text(_picture(list(_rows(results))))
    path.write_text("\n".join(_page(results, picture.name)) + "\n")


def _page(results: dict[str, Any], picture: str) -> Iterator[str]:
    yield _INTRODUCTION.format(threads=results.get("threads", 2), picture=picture)
    for row in _rows(results):
        cells = [
            row["label"],
            row["precision"].strip() or "fp32",
            row["best"],
            f"{row['ratio']:.2f}×",
            f"{row['low']:.2f} … {row['high']:.2f}",
            f"{row['rate']:.1f}",
            _number(1 / row["cpu"]),
            _number(row["memory"]),
            _number(row["plain"], "×"),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "CPU and memory are shares of what the best stock one takes; memory is what two steps add."
    if results.get("accuracy"):
        judged = results["judged"]
        yield ""
        yield (
            f"| MiniLM, an epoch of {judged['examples']:,} comments "
            f"| accuracy on {judged['held out']:,} others | seeds |"
        )
        yield "|---|---|---|"
        for name, by_seed in results["accuracy"].items():
            points = [100 * value for value in by_seed.values()]
            yield f"| {name} | {mean(points):.2f} ± {pstdev(points):.2f} % | {len(points)} |"


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.2f}{unit}"


def _picture(rows: list[dict[str, Any]]) -> str:
    """A bar for each row, its interval as a line; 1 is the stock Trainer."""
    width = _LEFT + int(_SCALE * max((row["high"] for row in rows), default=1)) + 70
    height = (_BAR + 6) * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for index, row in enumerate(rows):
        top = index * (_BAR + 6) + 8
        middle = top + _BAR / 2
        text = escape(f"{row['label']}{row['precision']}")
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{text}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{_SCALE * row["ratio"]:.1f}" height="{_BAR}" '
            f'fill="{_COLOURS[row["precision"]]}"/>',
            f'<line x1="{_LEFT + _SCALE * row["low"]:.1f}" x2="{_LEFT + _SCALE * row["high"]:.1f}" '
            f'y1="{middle}" y2="{middle}" stroke="#222"/>',
            f'<text x="{_LEFT + _SCALE * row["high"] + 6:.1f}" y="{middle + 4}">{row["ratio"]:.2f}×</text>',
        ]
    one = _LEFT + _SCALE
    parts.append(
        f'<line x1="{one}" x2="{one}" y1="2" y2="{height - 22}" stroke="#222" stroke-dasharray="3 3"/>'
    )
    parts.append(f'<text x="{one}" y="{height - 8}" text-anchor="middle">the stock Trainer</text></svg>')
    return "\n".join(parts) + "\n"
