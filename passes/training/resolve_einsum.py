"""The pass `resolve-einsum`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.local_rewrite import LocalRewrite

__all__ = ["ResolveEinsum"]


class ResolveEinsum(LocalRewrite):
    """Einsum of two operands → Transpose, Reshape and MatMul; of one operand → ReduceSum and Transpose"""

    name = "resolve-einsum"
    operators = ("Einsum",)

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        terms, result = _parse(node)
        if len(node.inputs) > 2:
            return f"it has {len(node.inputs)} operands"
        if any("." in t or len(set(t)) != len(t) for t in (*terms, result)):
            return "it uses an ellipsis or a letter twice in one operand"
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value:
        terms, result = _parse(node)
        values = [v for v in node.inputs if v is not None]
        kept = [
            _summed(op, v, t, set("".join([*terms[:i], *terms[i + 1 :], result])))
            for i, (v, t) in enumerate(zip(values, terms, strict=True))
        ]
        if len(kept) == 1:
            value, term = kept[0]
            return _transposed(op, value, term, result)
        return _product(op, *kept[0], *kept[1], result)


def _parse(node: ir.Node) -> tuple[list[str], str]:
    equation = node.attributes["equation"].as_string().replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        letters = "".join(terms)
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return terms, result


def _summed(op: Builder, value: ir.Value, term: str, wanted: set[str]) -> tuple[ir.Value, str]:
    """Sum over the letters that appear nowhere else."""
    alone = [i for i, c in enumerate(term) if c not in wanted]
    if not alone:
        return value, term
    return op.ReduceSum(value, alone, keepdims=0), "".join(c for c in term if c in wanted)


def _product(op: Builder, a: ir.Value, left: str, b: ir.Value, right: str, result: str) -> ir.Value:
    """As one batched matrix product [batch, rows, inner] · [batch, inner, columns]."""
    batch = [c for c in left if c in right and c in result]
    inner = [c for c in left if c in right and c not in result]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    x = _grouped(op, _transposed(op, a, left, "".join([*batch, *rows, *inner])), [batch, rows, inner])
    y = _grouped(op, _transposed(op, b, right, "".join([*batch, *inner, *columns])), [batch, inner, columns])
    flat = op.MatMul(x, y)
    sizes = [_size(op, a, left, c) for c in (*batch, *rows)] + [_size(op, b, right, c) for c in columns]
    if not sizes:
        return op.Reshape(flat, [])
    full = op.Reshape(flat, op.Concat(*sizes, axis=0))
    return _transposed(op, full, "".join([*batch, *rows, *columns]), result)


def _transposed(op: Builder, value: ir.Value, term: str, wanted: str) -> ir.Value:
    if term == wanted:
        return value
    return op.Transpose(value, perm=[term.index(c) for c in wanted])


def _grouped(op: Builder, value: ir.Value, groups: list[list[str]]) -> ir.Value:
    """Merge each group of neighbouring axes into one."""
    if all(len(g) == 1 for g in groups):
        return value
    sizes, start = [], 0
    for group in groups:
        shape = op.Shape(value, start=start, end=start + len(group))
        sizes.append(op.ReduceProd(shape, keepdims=1) if group else op.constant([1]))
        start += len(group)
    return op.Reshape(value, op.Concat(*sizes, axis=0))


def _size(op: Builder, value: ir.Value, term: str, letter: str) -> ir.Value:
    return op.Shape(value, start=term.index(letter), end=term.index(letter) + 1)
