"""Operators that sum up along axes: reductions, softmaxes, losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators import evaluation as by_numpy
from fuseline.engine.operators.gradient import BUILT_IN, Gradient, NoGradient, Prepared
from fuseline.engine.operators.operator import Bound, Feed, Operator
from fuseline.engine.shapes import rules
from fuseline.engine.shapes import value_rules as content

__all__ = ["REDUCTIONS"]


def _reduction(name: str, gradient: Gradient, since: int = 18, **more: Any) -> Operator:
    return Operator(
        name=name,
        gradient=gradient,
        indices=frozenset([1]),
        shape=rules.reduce_,
        cost=costs.per_input_element(1),
        feeds={1: Feed.AXES},
        moved={"axes": (1, since)},
        **more,
    )


def _softmax(name: str) -> Operator:
    return Operator(
        name=name,
        gradient=BUILT_IN,
        shape=rules.same,
        positions=positions.along_another_axis,
        cost=costs.per_element(12),
        in_place=(0,),
    )


REDUCTIONS = (
    _reduction("ReduceSum", BUILT_IN, since=13),
    _reduction("ReduceMean", BUILT_IN, positions=positions.reduction),
    _reduction("ReduceL2", BUILT_IN),
    _reduction("ReduceLogSumExp", BUILT_IN),
    _reduction("ReduceMax", Prepared()),
    _reduction("ReduceMin", Prepared()),
    _reduction("ReduceL1", Prepared()),
    _reduction("ReduceLogSum", Prepared()),
    _reduction("ReduceSumSquare", Prepared()),
    _reduction("ReduceProd", NoGradient("write it as exp(sum(log(x)))"),
               evaluate=by_numpy.reduction(np.prod), content=content.reduce_prod),
    _softmax("Softmax"),
    _softmax("LogSoftmax"),
    Operator(name="Hardmax", shape=rules.same, cost=costs.per_element(2)),
    Operator(name="SoftmaxCrossEntropyLoss", gradient=BUILT_IN, indices=frozenset([1, 2]),
             bounds={1: Bound(0, 1)}, cost=costs.per_input_element(12)),
    Operator(name="NegativeLogLikelihoodLoss", gradient=Prepared(), indices=frozenset([1, 2]),
             bounds={1: Bound(0, 1)}, cost=costs.per_input_element(1)),
)  # fmt: skip
