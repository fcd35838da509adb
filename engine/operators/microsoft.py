"""Operators that ONNX Runtime adds under `com.microsoft`."""

from __future__ import annotations

from typing import Any

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators.gradient import BUILT_IN
from fuseline.engine.operators.microsoft_schemas import SCHEMAS
from fuseline.engine.operators.operator import Bound, Operator, Trait, Weighted
from fuseline.engine.shapes import rules, rules_nn, rules_runtime

__all__ = ["MICROSOFT"]

_TRAINING = Trait.TRAINING


def _ours(name: str, **more: Any) -> Operator:
    schema = SCHEMAS.get(("com.microsoft", name))
    return Operator(name=name, domain="com.microsoft", declared=schema, **more)


def _gelu(name: str, **more: Any) -> Operator:
    fields: dict[str, Any] = {"traits": Trait.ELEMENTWISE, "shape": rules.same, "cost": costs.per_element(12)}
    return _ours(name, **(fields | more))


def _dropout(name: str, ratio: int, **more: Any) -> Operator:
    return _ours(name, traits=Trait.RANDOM | _TRAINING, ratio=ratio, **more)


MICROSOFT = (
    _gelu("Gelu", gradient=BUILT_IN, positions=positions.elementwise),
    _gelu("FastGelu", gradient=BUILT_IN, positions=positions.elementwise),
    _gelu("QuickGelu", gradient=BUILT_IN, positions=positions.elementwise),
    _gelu("BiasGelu"),
    _gelu("BiasSplitGelu", shape=None),
    _ours("FusedMatMul", shape=rules_runtime.fused_matmul, cost=costs.matmul,
          quantizable=Weighted("MatMul", "matrix")),
    _ours("FusedGemm", shape=rules.gemm, cost=costs.gemm, quantizable=Weighted("Gemm", "matrix")),
    _ours("FusedConv", shape=rules_nn.convolution, cost=costs.convolution,
          quantizable=Weighted("Conv", "convolution")),
    _ours("SimplifiedLayerNormalization", affine=(1,), shape=rules.normalization, cost=costs.per_element(8)),
    _ours("SkipLayerNormalization", affine=(2, 3), shape=rules_runtime.skip_norm, cost=costs.per_element(9)),
    _ours("SkipSimplifiedLayerNormalization", affine=(2,), shape=rules_runtime.skip_norm,
          cost=costs.per_element(7)),
    _ours("EmbedLayerNormalization", affine=(5, 6), shape=rules_runtime.embedding,
          bounds={0: Bound(2), 1: Bound(4)}, cost=costs.per_element(10)),
    _ours("Attention", shape=rules_runtime.attention, quantizable=Weighted("Attention", "attention")),
    _ours("MultiHeadAttention", shape=rules_runtime.multi_head),
    _ours("RotaryEmbedding", shape=rules.same, cost=costs.per_element(3)),
    _ours("DynamicQuantizeMatMul", traits=Trait.ROUNDS, shape=rules_runtime.typed_like(0), cost=costs.matmul),
    _ours("FakeQuant", traits=Trait.ELEMENTWISE | _TRAINING, shape=rules.same, gradient=BUILT_IN,
          cost=costs.per_element(4)),
    _ours("MatMulIntegerToFloat", shape=rules_runtime.typed_like(2), cost=costs.matmul),
    _ours("MatMulNBits", shape=rules_runtime.typed_like(0), cost=costs.matmul),
    _ours("QLinearAdd", traits=Trait.ELEMENTWISE, cost=costs.per_element(1)),
    _ours("QLinearMul", traits=Trait.ELEMENTWISE, cost=costs.per_element(1)),
    _ours("QLinearSigmoid", traits=Trait.ELEMENTWISE, cost=costs.per_element(1)),
    _ours("QLinearLeakyRelu", traits=Trait.ELEMENTWISE, cost=costs.per_element(1)),
    _ours("QLinearConcat", cost=costs.nothing),
    _ours("QLinearAveragePool", cost=costs.per_element(9)),
    _ours("QLinearGlobalAveragePool", cost=costs.per_input_element(1)),
    _ours("QLinearSoftmax", cost=costs.per_element(12)),
    _ours("QGemm", cost=costs.gemm),
    _ours("QAttention"),
    _ours("QEmbedLayerNormalization"),
    _ours("QuantizeLinear", traits=Trait.STORAGE | Trait.ROUNDS),
    _ours("DequantizeLinear", traits=Trait.STORAGE),
    _ours("BatchNormInternal", gradient=BUILT_IN, traits=_TRAINING, cost=costs.per_element(8),
          shape=rules_runtime.batch_norm_internal),
    _ours("SoftmaxCrossEntropyLossInternal", gradient=BUILT_IN, traits=_TRAINING,
          indices=frozenset([1, 2]), bounds={1: Bound(0, 1)}, cost=costs.per_input_element(12)),
    _dropout("DropoutGrad", 2),
    _dropout("BiasDropout", 3),
    _dropout("BitmaskDropout", 1),
    _dropout("BitmaskDropoutGrad", 2),
    _dropout("BitmaskBiasDropout", 3),
)  # fmt: skip
