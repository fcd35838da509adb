"""The canonical text: equal for graphs that differ in free choices alone."""

from __future__ import annotations

import onnx.parser
import pytest

from fuseline.engine.canonical import canonical_text, local_lines, with_plain_constants, without_details
from fuseline.engine.model import Model

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'
PLAIN = "g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(x) y = Sub(a, b) }"


def text(body: str) -> str:
    return canonical_text(Model.from_proto(onnx.parser.parse_model(HEADER + body)))


def test_names_and_order_inside_are_free() -> None:
    assert text(PLAIN) == text("h (float[N] x) => (float[N] y) { q = Abs(x) p = Neg(x) y = Sub(p, q) }")


@pytest.mark.parametrize(
    "other",
    [
        "g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(x) y = Sub(b, a) }",
        "g (float[N] x) => (float[N] z) { a = Neg(x) b = Abs(x) z = Sub(a, b) }",
        "g (float[M] x) => (float[M] y) { a = Neg(x) b = Abs(x) y = Sub(a, b) }",
        "g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(x) c = Exp(x) y = Sub(a, b) }",
        "g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(x) a2 = Neg(x) y = Sub(a2, b) }",
    ],
)
def test_everything_else_counts(other: str) -> None:
    assert text(PLAIN) != text(other)


def test_subgraphs_may_name_what_they_capture() -> None:
    one = """g (bool c, float[2] x) => (float[2] y) { a = Neg(x)
        y = If (c) <then_branch = t () => (float[2] u) { u = Exp(a) },
                    else_branch = e () => (float[2] v) { v = Log(a) }> }"""
    other = one.replace("a =", "named =").replace("(a)", "(named)").replace("u", "out")
    assert text(one) == text(other.replace("trout", "true"))
    assert text(one) != text(one.replace("Exp", "Log"))


def test_weights_count_by_content() -> None:
    body = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    assert text(body) == text(body.replace("w", "other"))
    assert text(body) != text(body.replace("{1, 2}", "{1, 3}"))


def test_types_inside_are_details() -> None:
    typed = "g (float[N] x) => (float[N] y) <float[N] a> { a = Neg(x) b = Abs(x) y = Sub(a, b) }"
    assert text(typed) != text(PLAIN)
    assert without_details(text(typed)) == without_details(text(PLAIN))


def test_a_local_line_knows_its_neighbours_only() -> None:
    longer = "g (float[N] x) => (float[N] y) { z = Exp(x) a = Neg(z) b = Abs(x) y = Sub(a, b) }"
    was, now = (local_lines(without_details(text(body))) for body in (PLAIN, longer))
    assert set(was) - set(now) == {"Neg(x)"}
    assert set(now) - set(was) == {"Exp(x)", "Neg(‹Exp›)"}


def test_a_constant_may_be_a_node_or_an_initializer() -> None:
    made = "c = Constant <value = float[2] {1, 2}> ()"
    node = f"g (float[2] x) => (float[2] y) {{ {made} z = Neg(x) y = Add(z, c) }}"
    weight = "g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { z = Neg(x) y = Add(z, c) }"
    assert text(node) != text(weight)
    assert with_plain_constants(text(node)) == with_plain_constants(text(weight))
    assert with_plain_constants(text(node)) != with_plain_constants(text(weight.replace("2}", "3}")))
