"""Optimizers that update every parameter of a model in one node, in place."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.operator import Array, Operator, Port, optional, port, variadic
from fuseline.kernels.ops.embedding import embedding_grad, touched_rows

__all__ = ["OPTIMIZER_OPERATORS"]


def _inputs(hyper: str) -> tuple[Port, ...]:
    return (
        port("learning_rate", type="double"),
        port("weight_decay", type="double"),
        port("hyper", hyper, "double"),
        port("step", "1", "int64"),
        port("max_norm", "1"),
        port("gradient_scale", "1"),
        port("apply", "1", "bool"),
        variadic("tensors"),
    )


_OUTPUTS = (port("applied", "1", "bool"), optional("gradient_norm", "1"))


def _scale(gradients: list[Array], gradient_scale: float, max_norm: float) -> tuple[float, float]:
    norm = abs(gradient_scale) * float(
        np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients))
    )
    clip = float(np.minimum(1.0, max_norm / (norm + 1e-6))) if max_norm > 0 else 1.0
    return norm, gradient_scale * clip


def _at(values: Array, index: int) -> float:
    return float(values.reshape(-1)[index if values.size > 1 else 0])


def adamw(
    learning_rate: Array,
    weight_decay: Array,
    hyper: Array,
    step: Array,
    max_norm: Array,
    gradient_scale: Array,
    apply: Array,
    *tensors: Array,
    zero_gradients: int = 0,
    skip_nonfinite: int = 0,
    advance: int = 1,
    first: int = -1,
) -> tuple[Array, ...]:
    """Changes ``step`` (with ``advance``) and the tensors in place, as the operator does."""
    count = len(tensors) // 4
    parameters, gradients, means, squares = (list(tensors[i * count : (i + 1) * count]) for i in range(4))
    if not apply.item():
        return np.array([False]), np.array([0], np.float32)
    norm, scale = _scale(gradients, float(gradient_scale.item()), float(max_norm.item()))
    applied = bool(np.isfinite(norm)) or not skip_nonfinite
    if applied:
        step += 1
        beta1, beta2, epsilon = (float(value) for value in hyper)
        for i, (p, g, m, v) in enumerate(zip(parameters, gradients, means, squares, strict=True)):
            rate = _at(learning_rate, max(first, 0) + i)
            scaled = g * np.float32(scale)
            m[...] = m * beta1 + (1 - beta1) * scaled
            v[...] = v * beta2 + (1 - beta2) * scaled * scaled
            root = np.sqrt(v) / np.sqrt(1 - beta2 ** step.item()) + epsilon
            p[...] = (
                p * (1 - rate * _at(weight_decay, max(first, 0) + i))
                - rate / (1 - beta1 ** step.item()) * m / root
            )
        step -= 1 - advance
    if zero_gradients:
        for g in gradients:
            g[...] = 0
    return np.array([applied]), np.array([norm], np.float32)


def sgd(
    learning_rate: Array,
    weight_decay: Array,
    hyper: Array,
    step: Array,
    max_norm: Array,
    gradient_scale: Array,
    apply: Array,
    *tensors: Array,
    zero_gradients: int = 0,
    skip_nonfinite: int = 0,
    advance: int = 1,
    first: int = -1,
    nesterov: int = 0,
) -> tuple[Array, ...]:
    """Changes ``step`` (with ``advance``) and the tensors in place, as the operator does."""
    momentum, dampening = (float(value) for value in hyper)
    kinds = 3 if momentum else 2
    count = len(tensors) // kinds
    lists = [list(tensors[i * count : (i + 1) * count]) for i in range(kinds)]
    if not apply.item():
        return np.array([False]), np.array([0], np.float32)
    norm, scale = _scale(lists[1], float(gradient_scale.item()), float(max_norm.item()))
    applied = bool(np.isfinite(norm)) or not skip_nonfinite
    if applied:
        step += 1
        for i, (p, g) in enumerate(zip(lists[0], lists[1], strict=True)):
            change = g * np.float32(scale) + p * _at(weight_decay, max(first, 0) + i)
            if momentum:
                buffer = lists[2][i]
                buffer[...] = change if step.item() == 1 else buffer * momentum + change * (1 - dampening)
                change = change + momentum * buffer if nesterov else buffer
            p[...] = p - _at(learning_rate, max(first, 0) + i) * change
        step -= 1 - advance
    if zero_gradients:
        for g in lists[1]:
            g[...] = 0
    return np.array([applied]), np.array([norm], np.float32)


def adamw_rows(
    learning_rate: Array,
    weight_decay: Array,
    hyper: Array,
    step: Array,
    max_norm: Array,
    gradient_scale: Array,
    apply: Array,
    weight: Array,
    dy: Array,
    ids: Array,
    state: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    advance: int = 1,
    first: int = -1,
) -> tuple[Array, ...]:
    """Changes ``step``, the table and its moments in place, as the operator does."""
    (gradient,) = embedding_grad(dy, ids, weight, state)
    settings = (learning_rate, weight_decay, hyper, step, max_norm, gradient_scale, apply)
    return adamw(*settings, weight, gradient, exp_avg, exp_avg_sq, advance=advance, first=first)


_SWITCHES = {"zero_gradients": 0, "skip_nonfinite": 0, "advance": 1, "first": -1}

OPTIMIZER_OPERATORS = (
    Operator(
        "FusedAdamW",
        "clip by global norm and apply torch's AdamW to every parameter; hyper = beta1, beta2, epsilon",
        _inputs("3"),
        _OUTPUTS,
        adamw,
        _SWITCHES,
    ),
    Operator(
        "FusedSgd",
        "clip by global norm and apply torch's SGD to every parameter; hyper = momentum, dampening",
        _inputs("2"),
        _OUTPUTS,
        sgd,
        {**_SWITCHES, "nesterov": 0},
    ),
    Operator(
        "FusedAdamWRows",
        "torch's AdamW for a table whose gradient is given as rows and their indices: rows that are not "
        "touched decay as with a gradient of zero",
        (
            *_inputs("3")[:-1],
            port("weight", "V,D"),
            port("dy", "*R,D"),
            port("ids", "*R", "int64"),
            port("state", "1", "int64"),
            port("exp_avg", "V,D"),
            port("exp_avg_sq", "V,D"),
        ),
        _OUTPUTS,
        adamw_rows,
        {"advance": 1, "first": -1},
        workspace=touched_rows,
    ),
)
