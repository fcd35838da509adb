"""Charts as people see them: nothing is cut off."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from fuseline.tools.measuring.bars import Bar, Panel, bars
from fuseline.tools.measuring.intervals import Interval

TEXT = "{http://www.w3.org/2000/svg}text"


def test_what_a_chart_is_about_is_wrapped_and_moves_the_bars_down() -> None:
    bar = Bar("a <pass>", Interval(1.0, 2.0, 3.0), "2 ms")
    long = ET.fromstring(bars([Panel("time", [bar], "word " * 80)]))
    short = ET.fromstring(bars([Panel("time", [bar])]))
    texts = [str(t.text) for t in long.iter(TEXT)]
    assert texts[0] == "time"
    assert texts[-2:] == ["a <pass>", "2 ms"]
    assert " ".join(texts[1:-2]).split() == ["word"] * 80
    assert max(map(len, texts)) <= 118
    places = [float(list(picture.iter(TEXT))[-1].attrib["y"]) for picture in (short, long)]
    assert places[1] - places[0] == 17 * len(texts[1:-2])
