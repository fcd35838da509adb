"""The patterns that the documents show: with any one node changed, `explain` names the near miss."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from documents import blocks, documents

from fuseline.engine.model import Model
from fuseline.engine.patterns import Fusion
from fuseline.engine.patterns.explain import explain

GELU = """d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(a, half) y = Mul(x, m)"""
FITTING = {
    "MyGelu": GELU,
    "WrongGelu": GELU,
    "FuseDoubleNeg": "a = Neg(x) y = Neg(a)",
    "FuseClamp": "a = Max(x, half) y = Min(a, one)",
}
"""A graph that each pattern fits."""
OTHER = {1: "Abs", 2: "Pow"}


def shown() -> Iterator[tuple[str, str]]:
    """The name and the source of every fusion in a document."""
    for path in documents():
        for _, language, source in blocks(path):
            if language == "python" and "(Fusion)" in source:
                yield source.split("(Fusion)")[0].rsplit("class ", 1)[1], textwrap.dedent(source)


def fusion(name: str, source: str) -> Fusion:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, name, "exec"), names)
    made = names[name]()
    assert isinstance(made, Fusion)
    return made


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[N,4] x) => (float[N,4] y) '
        f"<float half = {{0.5}}, float one = {{1}}, float root = {{{np.sqrt(2)}}}> {{ {body} }}"
    )


def test_every_shown_pattern_is_here() -> None:
    assert {name for name, _ in shown()} == set(FITTING)


@pytest.mark.parametrize("name", FITTING)
def test_a_changed_node_is_a_near_miss(name: str) -> None:
    pattern = fusion(name, dict(shown())[name])
    whole = model(FITTING[name])
    assert len(explain(pattern, Model.from_proto(whole)).matches) == 1
    for index, node in enumerate(whole.graph.node):
        changed = onnx.ModelProto.FromString(whole.SerializeToString())
        changed.graph.node[index].op_type = OTHER[len(node.input)]
        told = explain(pattern, Model.from_proto(changed), any_root=True)
        assert not told.matches
        assert any(OTHER[len(node.input)] in f"{miss.op_type} {miss.found}" for miss in told.near_misses), (
            node
        )
