"""Analyses: what they say, and how long they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from fuseline.engine.analysis import Costs, Liveness, Positions, Reads, ancestors
from fuseline.engine.manager import PassManager
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.rewriting.rewriter import Rewriter

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
BRANCH = (
    HEAD
    + """g (bool c, float[4] x) => (float[4] y) <float[4] a, float[4] b> {
    a = Neg(x)
    b = Exp(x)
    y = If(c) <
        then_branch = t () => (float[4] p) { p = Add(a, b) },
        else_branch = e () => (float[4] q) { q = Identity(b) }>
}"""
)


def named(model: Model, name: str) -> Any:
    return next(v for n in model.nodes() for v in n.outputs if v.name == name)


def test_what_a_branch_captures_is_read() -> None:
    model = Model.from_text(BRANCH)
    node = named(model, "y").producer()
    reads = Reads(model)
    assert {v.name for v in reads.of[node]} == {"c", "a", "b"}
    assert node in reads.readers[named(model, "a")]
    assert {v.name for v in ancestors([named(model, "y")])} == {"y", "c", "a", "b", "x"}


def test_liveness_counts_captures_and_outputs() -> None:
    model = Model.from_text(BRANCH)
    lives = Liveness(model).lifetimes
    assert (lives[named(model, "a")].first, lives[named(model, "a")].last) == (0, 2)
    assert lives[named(model, "y")].last == 3
    assert lives[named(model, "b")].bytes == 16


def test_a_view_shares_memory_and_keeps_it_alive() -> None:
    text = (
        HEAD
        + """g (float[N, 4] x, int64[1] s) => (float[M] y) {
        a = Neg(x)
        v = Reshape(a, s)
        b = Exp(a)
        c = Mul(b, b)
        y = Abs(v)
    }"""
    )
    model = Model.from_text(text)
    liveness = Liveness(model)
    a, v, b = (named(model, n) for n in "avb")
    assert liveness.memory(v) is a
    assert v not in liveness.lifetimes
    assert liveness.lifetimes[a].last == 4
    assert liveness.lifetimes[b].bytes == "16*N" or liveness.lifetimes[b].bytes is None


def test_usage_and_overwriting() -> None:
    model = Model.from_text(
        HEAD + "g (float[4] x) => (float[4] y) <float[4] a, float[4] b> { a = Neg(x) b = Tanh(a) y = Abs(b) }"
    )
    liveness = Liveness(model)
    nodes = list(model.graph)
    assert [v.name for v in liveness.may_overwrite(nodes[1])] == ["a"]
    assert liveness.may_overwrite(nodes[0]) == []  # the input is not ours
    assert liveness.usage({}) == [16, 32, 32]


def test_another_order_gives_other_lifetimes() -> None:
    model = Model.from_text(
        HEAD
        + "g (float[4] x) => (float[4] y) <float[4] a, float[4] b> { a = Neg(x) b = Exp(x) y = Add(a, b) }"
    )
    a, b, y = model.graph
    lives = Liveness(model, [b, a, y]).lifetimes
    assert lives[named(model, "b")].first == 0
    assert lives[named(model, "a")].first == 1


def test_costs_are_symbolic_until_sizes_are_given() -> None:
    model = Model.from_text(HEAD + "g (float[N, 8] x, float[8, 2] w) => (float[N, 2] y) { y = MatMul(x, w) }")
    [cost] = Costs(model).values()
    assert cost.operations == "32*N"
    assert cost.at({"N": 3}).operations == 96
    assert cost.at({"N": 3}).traffic == 4 * (3 * 8 + 8 * 2 + 3 * 2)


class _Asks(Pass):
    """asks for the positions → the same graph"""

    name = "test-asks"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        SEEN.append(rewriter.analysis(Positions))
        return 0


class _Renames(Pass):
    """Neg → Abs"""

    name = "test-renames"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type == "Neg" and rewriter.permit(node):
                op = rewriter.builder(node)
                rewriter.replace([node], op.nodes, [(node.outputs[0], op.Abs(node.inputs[0]))])
        return rewriter.changes


class _RenamesInPlace(_Renames):
    """Neg → Abs, by hand"""

    name = "test-renames-in-place"
    preserves = (Positions,)

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in model.graph:
            if node.op_type == "Neg" and rewriter.permit(node):
                node.op_type = "Abs"
        return rewriter.changes


SEEN: list[Positions] = []


@pytest.mark.parametrize("changes, kept", [(_Renames(), False), (_RenamesInPlace(), True)])
def test_an_analysis_lasts_until_a_change_that_does_not_preserve_it(changes: Pass, kept: bool) -> None:
    SEEN.clear()
    model = Model.from_text(HEAD + "g (float[4] x) => (float[4] y) { a = Neg(x) y = Exp(a) }")
    PassManager(Pipeline((_Asks(), _Asks(), changes, _Asks()))).run(model)
    assert SEEN[0] is SEEN[1]
    assert (SEEN[2] is SEEN[1]) == kept
