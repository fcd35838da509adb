"""Names for sizes that are not known are left out when a model is read."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

import fuseline

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float["unk__1", N, "?"] x, float["unk__1", N, 4] z, bool c) => (float["unk__1", N, "-1"] y)
  <float["unk", batch] a> {
  a = Flatten(x)
  y = If (c) <
    then_branch = t () => (float["unk__2", N] p) { p = Add(x, x) },
    else_branch = e () => (float["dynamic", N] q) { q = Identity(z) }
  >
}"""


def test_placeholders_are_open_sizes_in_every_graph(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    model = fuseline.load(path)
    shapes = {
        value.name: [dim if isinstance(dim, int) else dim.value for dim in value.shape]
        for graph in model.graphs()
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs))
        if value.shape is not None
    }
    assert shapes == {
        "x": [None, "N", None],
        "z": [None, "N", 4],
        "c": [],
        "a": [None, "batch"],
        "y": [None, "N", None],
        "p": [None, "N"],
        "q": [None, "N"],
    }
    model.save(path)
    assert b"unk" not in path.read_bytes()
