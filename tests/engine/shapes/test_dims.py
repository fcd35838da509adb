"""Symbolic dimensions: arithmetic agrees with numbers, and equal sums have one spelling."""

from __future__ import annotations

import hypothesis.strategies as st
import onnx_ir as ir
import pytest
from hypothesis import given

from fuseline.engine.shapes import dims
from fuseline.engine.shapes.dims import Dim

SIZES = {"N": 3, "S": 5, "b.1": 7}
names = st.sampled_from(sorted(SIZES))
numbers = st.integers(0, 6)


def value(dim: Dim) -> int:
    assert dim is not None
    if isinstance(dim, int):
        return dim
    total = 0
    for term in dim.split(" + "):
        product = 1
        for factor in term.split("*"):
            product *= SIZES[factor] if factor in SIZES else int(factor)
        total += product
    return total


sums = st.recursive(
    names | numbers,
    lambda inner: st.tuples(st.sampled_from([dims.add, dims.subtract, dims.multiply]), inner, inner).map(
        lambda made: made[0](made[1], made[2])
    ),
    max_leaves=6,
)


@given(sums, sums)
def test_operations_agree_with_numbers(a: Dim, b: Dim) -> None:
    assert value(dims.add(a, b)) == value(a) + value(b)
    assert value(dims.subtract(a, b)) == value(a) - value(b)
    assert value(dims.multiply(a, b)) == value(a) * value(b)


@given(sums, sums)
def test_one_spelling(a: Dim, b: Dim) -> None:
    assert dims.add(a, b) == dims.add(b, a)
    assert dims.multiply(a, b) == dims.multiply(b, a)
    assert dims.subtract(dims.add(a, b), b) == a


@given(sums.filter(bool), names | numbers.filter(bool))
def test_division_undoes_multiplication(a: Dim, b: Dim) -> None:
    assert dims.divide(dims.multiply(a, b), b) == a


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [("N", 2, None), ("2*N", 2, "N"), ("N*S", "S", "N"), ("N + 1", "N", None), (7, 2, 3), (7, 0, None)],
)
def test_division_only_where_certain(a: Dim, b: Dim, expected: Dim) -> None:
    assert dims.divide(a, b) == expected


def test_unknown_stays_unknown() -> None:
    assert dims.add(None, 1) is None
    assert dims.add(None, 0) is None
    assert dims.multiply(None, 1) is None
    assert not dims.equal((None,), (None,))
    assert not dims.equal(None, None)


def test_odd_names_are_opaque_but_equal_to_themselves() -> None:
    assert dims.equal(("floor(x/2)", 3), ("floor(x/2)", 3))
    assert dims.add("floor(x/2)", 1) is None
    assert dims.multiply("floor(x/2)", 1) == "floor(x/2)"


@pytest.mark.parametrize(
    "name", ["", "?", "-1", "*", "None", "unk", "unk__12", "Unknown", "unknown_3", "dynamic", "null", "7"]
)
def test_a_placeholder_promises_nothing(name: str) -> None:
    value = ir.Value(name="v", shape=ir.Shape([name, 3]))
    assert dims.dims_of(value) == (None, 3)


@pytest.mark.parametrize("name", ["N", "batch", "batch_size", "unk_batch", "s0", "d_x_0", "x#0", "2*N + 1"])
def test_a_name_is_trusted(name: str) -> None:
    assert dims.dims_of(ir.Value(name="v", shape=ir.Shape([name]))) == (name,)


def test_torch_flattened_lengths() -> None:
    value = ir.Value(name="v", shape=ir.Shape(["((length*batch)//batch)", "((a*b)//c)"]))
    assert dims.dims_of(value) == ("length", "((a*b)//c)")


@pytest.mark.parametrize(
    ("dims_", "expected"),
    [
        (("N", "(S//4)", "(T//4)", 2), "2*(S//4)*(T//4)*N"),
        (("(S + 1)", 2), "2*(S + 1)"),
        (("((a*b)//c)", "N"), "((a*b)//c)*N"),
        (("(a)(b)", "N"), None),
        (("S - 1", "N"), None),
        (("min(8,S)", "N"), None),
        (("(S", "N"), None),
    ],
)
def test_what_stands_in_brackets_is_one_name(dims_: dims.Dims, expected: Dim) -> None:
    assert dims.product(dims_) == expected


def test_terms_in_brackets_add_up() -> None:
    assert dims.add("(S//2)", "(S//2) + 1") == "2*(S//2) + 1"
    assert dims.subtract("(S//2) + 1", 1) == "(S//2)"
    assert dims.divide("16*(S//4)*N", "16*N") == "(S//4)"
