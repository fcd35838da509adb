"""Boxes in layers: every one has a place, wires go down, and igraph gets what it can take."""

from __future__ import annotations

import random
from typing import Any

import igraph
import pytest

from fuseline.engine.report.layering import place


@pytest.mark.parametrize("seed", range(40))
def test_every_box_has_a_place_of_its_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[igraph.Graph] = []
    layout = igraph.Graph.layout_sugiyama

    def watched(graph: igraph.Graph, **options: Any) -> Any:
        given.append(graph)
        return layout(graph, **options)

    monkeypatch.setattr(igraph.Graph, "layout_sugiyama", watched)
    chance = random.Random(seed)
    children = list(range(chance.choice([0, 1, 2, 3, 8, 30])))
    edges = [tuple(chance.choices(children, k=2)) for _ in range(chance.randrange(2 * len(children) + 1))]
    boxes, lanes = place(children, edges)
    assert sorted(p.child for p in boxes) == children
    assert len({(p.layer, p.column) for p in (*boxes, *lanes)}) == len(boxes) + len(lanes)
    # igraph 1.0 reads behind the end of a list where a graph has cycles or several parts.
    assert all(graph.is_dag() and graph.is_connected(mode="weak") for graph in given)


def test_wires_go_down() -> None:
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (2, 5)]
    layer = {p.child: p.layer for p in place(range(6), edges).boxes}
    assert all(layer[a] < layer[b] for a, b in edges)


def test_a_wire_that_passes_layers_has_a_lane_in_each() -> None:
    """One lane a layer, however many wires of a box run there."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (0, 4)]
    boxes, lanes = place(range(5), edges)
    assert [(lane.child, lane.layer) for lane in lanes] == [(0, 1), (0, 2), (0, 3)]
    columns = {p.layer: p.column for p in boxes}
    assert all(lane.column != columns[lane.layer] for lane in lanes)


def test_what_is_read_once_stands_above_its_reader() -> None:
    layer = {p.child: p.layer for p in place("abcxy", [("a", "b"), ("b", "c"), ("x", "y"), ("y", "c")]).boxes}
    assert layer == {"a": 0, "b": 1, "c": 2, "x": 0, "y": 1}
    far = {p.child: p.layer for p in place("abcdx", [("a", "b"), ("b", "c"), ("c", "d"), ("x", "d")]).boxes}
    assert far["x"] == far["c"], "not at the top, three layers from where it is read"
