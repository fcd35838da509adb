"""The Gelu family as exporters write it out."""

from __future__ import annotations

from math import pi, sqrt

from fuseline.engine.patterns import Op, Term

__all__ = ["erf_gelu", "tanh_gelu"]


def halved(op: Op, x: Term, factor: Term) -> Term:
    """½·x·factor, however grouped."""
    return op.one_of(
        op.associative("Mul", x, factor, 0.5),
        op.Div(op.Mul(x, factor), 2.0),
        op.Mul(op.Div(x, 2.0), factor),
    )


def erf_gelu(op: Op, x: Term) -> Term:
    """½·x·(1 + Erf(x/√2))"""
    inner = op.one_of(op.Div(x, sqrt(2)), op.Mul(x, sqrt(0.5)))
    return halved(op, x, op.Add(op.Erf(inner), 1.0))


def tanh_gelu(op: Op, x: Term) -> Term:
    """½·x·(1 + Tanh(√(2/π)·(x + 0.044715·x³)))"""
    cube = op.one_of(op.Pow(x, 3.0), op.associative("Mul", x, x, x))
    whole = op.Mul(op.Add(x, op.Mul(cube, 0.044715)), sqrt(2 / pi))
    # x·√(2/π)·(1 + 0.044715·x²), as some models factor it.
    factored = op.Mul(op.Mul(x, sqrt(2 / pi)), op.Add(op.associative("Mul", x, x, 0.044715), 1.0))
    return halved(op, x, op.Add(op.Tanh(op.one_of(whole, factored)), 1.0))
