"""Normalisation as exporters write it out."""

from __future__ import annotations

from fuseline.engine.patterns import Op, Term

__all__ = ["inverse_root", "layer_norm", "mean", "rms_norm"]


def mean(op: Op, x: Term, axes: Term) -> Term:
    """ReduceMean with the axes as an input (opset 18) or as an attribute."""
    return op.one_of(op.ReduceMean(x, axes, keepdims=1), op.ReduceMean(x, axes=axes, keepdims=1))


def square(op: Op, x: Term) -> Term:
    return op.one_of(op.Pow(x, 2.0), op.Mul(x, x))


def inverse_root(op: Op, numerator: Term, variance: Term, epsilon: Term) -> Term:
    """numerator / √(variance + ε), in the ways it is written."""
    root = op.Sqrt(op.Add(variance, epsilon))
    return op.one_of(
        op.Div(numerator, root),
        op.Mul(numerator, op.Reciprocal(root)),
        op.Mul(numerator, op.Div(1.0, root)),
        op.Mul(numerator, op.Pow(op.Add(variance, epsilon), -0.5)),
    )


def layer_norm(op: Op, x: Term, axes: Term, epsilon: Term) -> Term:
    """(x − mean) / √(variance + ε)"""
    centred = op.Sub(x, mean(op, x, axes))
    # Some exporters compute the difference twice.
    again = op.one_of(centred, op.Sub(x, mean(op, x, axes)))
    return inverse_root(op, centred, mean(op, square(op, op.optional(op.Cast, again)), axes), epsilon)


def rms_norm(op: Op, x: Term, axes: Term, epsilon: Term) -> Term:
    """x / √(mean of squares + ε)"""
    return inverse_root(op, x, mean(op, square(op, x), axes), epsilon)
