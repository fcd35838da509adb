"""Translations of torch operators to ONNX where torch's are wrong: in training, for large numbers, at 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.function_libs.torch_lib.ops.linalg import aten_linalg_vector_norm

__all__ = ["training_translations"]

# onnxscript's operators are typed for eager evaluation; while translating they take symbols.
op: Any = opset18


def training_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Torch operator → translation, for `torch.onnx.export`."""
    return {
        torch.ops.aten._native_batch_norm_legit_functional.default: _batch_norm,
        torch.ops.aten.log_sigmoid.default: _log_sigmoid,
        torch.ops.aten.logaddexp.default: _log_add,
        torch.ops.aten.logaddexp2.default: _log_add_2,
        torch.ops.aten.logcumsumexp.default: _log_cumulative_sum,
        torch.ops.aten.linalg_vector_norm.default: _vector_norm,
        torch.ops.aten.sinc.default: _sinc,
    }


def _batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch norm that really normalises by the batch in training; torch's translation never does.

    The operator is given no memory (momentum 0, statistics to throw away), so that it yields the batch's own
    mean and variance: ONNX Runtime writes new statistics over the old ones, and ONNX's running variance is
    not torch's, which takes the unbiased one. The running statistics are computed beside it.
    """
    kept = 1.0 - momentum
    channels = op.Shape(x, start=1, end=2)
    zeros = op.Expand(op.Constant(value_float=0.0), channels)
    ones = op.Expand(op.Constant(value_float=1.0), channels)
    weight, bias = ones if weight is None else weight, zeros if bias is None else bias
    if not training:
        y = op.BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=eps, momentum=kept)
        return y, running_mean, running_var, op.Identity(running_mean), op.Identity(running_var)
    if running_mean is not None:
        # Any memory of their own will do, as momentum is 0; but a constant must not be written over.
        zeros, ones = op.Neg(running_mean), op.Neg(running_var)
    y, mean, variance = op.BatchNormalization(
        x, weight, bias, zeros, ones, epsilon=eps, momentum=0.0, training_mode=1
    )
    if running_mean is None:
        return y, mean, variance, mean, variance
    count = op.Cast(op.Div(op.Size(x), op.Squeeze(channels)), to=1)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, op.Constant(value_float=1.0))))
    new_mean = _blend(running_mean, mean, kept)
    new_var = _blend(running_var, unbiased, kept)
    # The saved statistics serve torch's own backward only; nothing in a forward graph reads them.
    return y, mean, variance, new_mean, new_var


def _blend(old: Any, new: Any, kept: float) -> Any:
    old_share = op.Mul(old, op.Constant(value_float=kept))
    return op.Add(old_share, op.Mul(new, op.Constant(value_float=1.0 - kept)))


def _log_sigmoid(x: Any) -> Any:
    """−log(1 + e⁻ˣ). Torch's translation is the logarithm of a sigmoid, in ONNX Runtime 0 below −18."""
    return op.Neg(_softplus(op.Neg(x)))


def _log_add(a: Any, b: Any) -> Any:
    """log(eᵃ + eᵇ) without either power, which overflows at 89. Equal infinities have no difference."""
    apart = op.Where(op.Equal(a, b), op.CastLike(op.Constant(value_float=0.0), a), op.Sub(a, b))
    return op.Add(op.Max(a, b), _softplus(op.Neg(op.Abs(apart))))


def _log_add_2(a: Any, b: Any) -> Any:
    log_2 = op.CastLike(op.Constant(value_float=math.log(2)), a)
    return op.Div(_log_add(op.Mul(a, log_2), op.Mul(b, log_2)), log_2)


def _log_cumulative_sum(x: Any, dim: int) -> Any:
    """The logarithm of each sum by itself: measured by one maximum for all, the small ones are lost.

    Every sum reads its row of a triangle, so that memory grows with the square of the length.
    """
    last = op.Constant(value_ints=[-1])
    rank = len(x.shape)
    if rank == 0:
        return op.Identity(x)
    there = [axis for axis in range(rank) if axis != dim % rank] + [dim % rank]
    x = op.Unsqueeze(op.Transpose(x, perm=there), op.Constant(value_ints=[-2]))
    length = op.Shape(x, start=-1)
    lower = op.Trilu(op.Expand(op.Constant(value_int=1), op.Concat(length, length, axis=0)), upper=0)
    nothing = op.CastLike(op.Constant(value_float=-math.inf), x)
    sums = op.ReduceLogSumExp(op.Where(op.Cast(lower, to=9), x, nothing), last, keepdims=0)
    return op.Transpose(sums, perm=[there.index(axis) for axis in range(rank)])


def _vector_norm(x: Any, ord: float = 2.0, dim: Any = None, keepdim: bool = False, dtype: int = -1) -> Any:
    """Torch's translation but for powers and roots at 0: they have no gradient there, and norms have 0."""
    if ord <= 0 or ord in (1.0, 2.0, math.inf):
        return aten_linalg_vector_norm(x, ord, dim, keepdim, dtype)
    x = op.Abs(x if dtype == -1 else op.Cast(x, to=dtype))
    axes = None if dim is None else op.Constant(value_ints=list(dim))
    sums = op.ReduceSum(_power(x, ord), axes, keepdims=int(keepdim))
    return _power(sums, 1.0 / ord)


def _power(x: Any, exponent: float) -> Any:
    """A power with no gradient at 0."""
    nothing = op.CastLike(op.Constant(value_float=0.0), x)
    at_zero = op.Equal(x, nothing)
    base = op.Where(at_zero, op.CastLike(op.Constant(value_float=1.0), x), x)
    return op.Where(at_zero, nothing, op.Pow(base, op.CastLike(op.Constant(value_float=exponent), x)))


def _sinc(x: Any) -> Any:
    """sin(πx)/(πx). Torch's translation divides by 0 at 0 and then looks away, which a gradient does not."""
    one = op.CastLike(op.Constant(value_float=1.0), x)
    at_zero = op.Equal(x, op.CastLike(op.Constant(value_float=0.0), x))
    angle = op.Mul(op.Where(at_zero, one, x), op.CastLike(op.Constant(value_float=math.pi), x))
    return op.Where(at_zero, one, op.Div(op.Sin(angle), angle))


def _softplus(x: Any) -> Any:
    if x.dtype != ir.DataType.DOUBLE:
        return op.Softplus(x)
    # ONNX Runtime has no kernel of Softplus for double.
    one = op.CastLike(op.Constant(value_float=1.0), x)
    return op.Add(op.Relu(x), op.Log(op.Add(one, op.Exp(op.Neg(op.Abs(x))))))
