"""Matrix products, convolutions, pooling and recurrent layers."""

from __future__ import annotations

from typing import Any

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators.gradient import BUILT_IN, NoGradient, Prepared
from fuseline.engine.operators.operator import Operator, Trait, Weighted
from fuseline.engine.shapes import rules, rules_nn

__all__ = ["PRODUCTS"]

_RECURRENT = NoGradient(
    "unroll it or use attention; ONNX Runtime has no gradient for recurrent operators on the CPU"
)


def _pooling(name: str, *, window: bool, **more: Any) -> Operator:
    """A window costs as many operations as it has elements; `costs` counts a usual one of nine."""
    rule = None if window else rules_nn.global_pooling
    cost = costs.per_element(9) if window else costs.per_input_element(1)
    return Operator(name=name, shape=rule, cost=cost, **more)


PRODUCTS = (
    Operator(name="MatMul", gradient=BUILT_IN, shape=rules.matmul, positions=positions.matmul,
             cost=costs.matmul, quantizable=Weighted("MatMul", "matrix")),
    Operator(name="Gemm", gradient=BUILT_IN, shape=rules.gemm, cost=costs.gemm,
             quantizable=Weighted("Gemm", "matrix")),
    Operator(name="Conv", gradient=BUILT_IN, shape=rules_nn.convolution, cost=costs.convolution,
             quantizable=Weighted("Conv", "convolution")),
    Operator(name="ConvTranspose", cost=costs.convolution, gradient=NoGradient(
             "upsample with Resize(nearest) and a convolution, or freeze what lies before it")),
    Operator(name="Einsum", gradient=NoGradient("write it as a product of two operands")),
    Operator(name="MatMulInteger", cost=costs.matmul),
    Operator(name="ConvInteger", cost=costs.convolution),
    Operator(name="QLinearMatMul", traits=Trait.ROUNDS, cost=costs.nothing),
    Operator(name="QLinearConv", traits=Trait.ROUNDS, cost=costs.nothing),
    _pooling("AveragePool", window=True, gradient=Prepared()),
    _pooling("MaxPool", window=True, gradient=BUILT_IN),
    _pooling("LpPool", window=True),
    _pooling("GlobalAveragePool", window=False, gradient=BUILT_IN),
    _pooling("GlobalMaxPool", window=False),
    Operator(name="GRU", gradient=_RECURRENT),
    Operator(name="LSTM", gradient=_RECURRENT),
    Operator(name="RNN", gradient=_RECURRENT),
)  # fmt: skip
