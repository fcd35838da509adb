"""Sizes of any graph: names of dimensions as exporters write them, functions, nested graphs, huge numbers."""

from __future__ import annotations

import onnx.parser
import pytest

from fuseline.engine.errors import FuselineError
from fuseline.engine.memory import Simulation, at_sizes, symbols
from fuseline.engine.memory.options import parse_sizes, sizes_for
from fuseline.engine.memory.planning import candidates
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def named(first: str, second: str) -> Model:
    """Exp and Neg of a matrix whose dimensions have names that text may not be able to write."""
    made = onnx.parser.parse_model(f"{HEADER} g (float[N,M] x) => (float[N,M] y) {{ a = Exp(x) y = Neg(a) }}")
    for value in (*made.graph.input, *made.graph.output):
        for dim, name in zip(value.type.tensor_type.shape.dim, (first, second), strict=True):
            dim.dim_param = name
    return Model.from_proto(made)


@pytest.mark.parametrize("name", ["batch size", "a+b", "x=1", "日本", "N/2", "(N//2)", "a,b", "{n}"])
def test_every_name_of_a_dimension_is_a_size(name: str) -> None:
    made = named(name, "M")
    assert symbols(made) == [name, "M"]
    sizes = sizes_for(made, [f"{name}=5", "M=3"])
    assert sizes == {name: 5, "M": 3}
    found = Simulation(at_sizes(made, sizes))
    assert found.unknown == []
    assert found.peak == 2 * 5 * 3 * 4
    assert {plan.peak for plan in candidates(made, sizes)} == {2 * 64}


def test_a_sum_is_no_size_of_its_own() -> None:
    made = named("past + length", "length")
    assert symbols(made) == ["past", "length"]
    assert Simulation(at_sizes(made, {"past": 7, "length": 3})).peak == 2 * 10 * 3 * 4
    assert sizes_of(made, {"x": (10, 3)}) == {"past": 7, "length": 3}
    assert sizes_of(named("length", "2*past + length"), {"x": (3, 9)}) == {"length": 3, "past": 3}


def test_functions_are_planned_as_they_run() -> None:
    made = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17, "me" : 1]>\n'
        "g (float[N,4] x) => (float[N,4] y) { a = me.F(x) y = Neg(a) }\n"
        '<domain: "me", opset_import: ["" : 17]>\nF (u) => (v) { t = MatMul(u, u) v = Exp(t) }'
    )
    first = candidates(made, {"N": 4})[0]
    assert Simulation(at_sizes(first.model, {"N": 4})).unknown == []


def test_what_nested_graphs_make_is_listed() -> None:
    made = Model.from_text(
        f"{HEADER} g (bool c, float[N] x) => (float[N] y) {{ y = If(c)<"
        "then_branch = t () => (float[N] o) { i = Exp(x) o = Neg(i) },"
        "else_branch = e () => (float[N] p) { p = Neg(x) }> }"
    )
    assert {"i", "o", "p"} <= set(Simulation(at_sizes(made, {"N": 4})).unknown)


def test_sizes_that_no_machine_has_are_refused() -> None:
    with pytest.raises(FuselineError, match=r"take \S+ bytes together, which no machine can address"):
        candidates(named("N", "M"), {"N": 10**20, "M": 10**20})
    with pytest.raises(FuselineError, match="'N=-1' is not a size"):
        parse_sizes(["N=-1"])
