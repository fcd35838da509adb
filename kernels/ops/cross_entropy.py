"""Cross-entropy of logits and class indices, without a tensor of probabilities."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.operator import Array, GradientNode, Operator, optional, port
from fuseline.kernels.workspace import lines

__all__ = ["CROSS_ENTROPY_OPERATORS"]


def cross_entropy(
    logits: Array, labels: Array, ignore_index: int = -100, reduction: int = 0, label_smoothing: float = 0.0
) -> tuple[Array, ...]:
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    log_sum = np.log(np.exp(x - top).sum(-1, keepdims=True))
    counted = labels != ignore_index
    chosen = np.take_along_axis(x, np.where(counted, labels, 0)[..., None], -1)[..., 0]
    losses = (top + log_sum)[..., 0] - (1 - label_smoothing) * chosen - label_smoothing * x.mean(-1)
    weight = 1.0 if reduction else 1 / counted.sum()
    loss = np.array(losses[counted].sum() * weight, np.float32)
    state = np.array([weight, label_smoothing], np.float32)
    statistics = np.where(counted[..., None], np.concatenate([top, log_sum], -1), [0, np.inf])
    return loss, statistics.astype(np.float32), state


def cross_entropy_grad(
    dloss: Array, logits: Array, labels: Array, statistics: Array, state: Array
) -> tuple[Array, ...]:
    top, log_sum = statistics[..., 0], statistics[..., 1]
    counted = log_sum != np.inf
    target = np.full(logits.shape, state[1] / logits.shape[-1])
    chosen = np.where(counted, labels, 0)[..., None]
    np.put_along_axis(target, chosen, np.take_along_axis(target, chosen, -1) + 1 - state[1], -1)
    difference = np.exp(logits - top[..., None] - np.where(counted, log_sum, 0)[..., None]) - target
    return ((difference * counted[..., None] * state[0] * dloss).astype(np.float32),)


CROSS_ENTROPY_OPERATORS = (
    Operator(
        "FusedCrossEntropy",
        "cross-entropy of logits against class indices; reduction 0 is the mean, 1 the sum",
        (port("logits", "*R,V"), port("labels", "*R", "int64")),
        (port("loss", "()"), optional("statistics", "*R,2"), optional("state", "2")),
        cross_entropy,
        {"ignore_index": -100, "reduction": 0, "label_smoothing": 0.0},
        (GradientNode("FusedCrossEntropyGrad", ("GO(0)", "I(0)", "I(1)", "O(1)", "O(2)"), ("GI(0)",)),),
        lambda sizes: lines(3 * sizes["R"]),
    ),
    Operator(
        "FusedCrossEntropyGrad",
        "gradient of FusedCrossEntropy; the probabilities are made again from the rows' statistics",
        (
            port("dloss", "1"),
            port("logits", "*R,V"),
            port("labels", "*R", "int64"),
            port("statistics", "*R,2"),
            port("state", "2"),
        ),
        (port("dlogits", "*R,V"),),
        cross_entropy_grad,
        in_place=(1,),
    ),
)
