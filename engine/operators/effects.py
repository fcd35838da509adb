"""Operators that draw random numbers, run graphs, or store numbers in fewer bits."""

from __future__ import annotations

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators.gradient import BUILT_IN, NoGradient
from fuseline.engine.operators.operator import Operator, Trait
from fuseline.engine.shapes import rules

__all__ = ["EFFECTS"]

_UNROLL = NoGradient("export with a fixed number of steps, so that the loop is unrolled")
_STORED = Trait.STORAGE | Trait.DISCRETE


def _random(name: str) -> Operator:
    return Operator(name=name, traits=Trait.RANDOM | Trait.DISCRETE, cost=costs.per_element(10))


EFFECTS = (
    *(_random(f"Random{n}") for n in ("Normal", "NormalLike", "Uniform", "UniformLike")),
    _random("Multinomial"),
    _random("Bernoulli"),
    Operator(name="Dropout", traits=Trait.RANDOM | Trait.MOVES, gradient=BUILT_IN, ratio=1,
             indices=frozenset([1, 2]), shape=rules.dropout, positions=positions.first_operand,
             cost=costs.per_element(10), feeds={1: 0.5, 2: True}, moved={"ratio": (1, 12)}),
    Operator(name="If", traits=Trait.STATEFUL),
    Operator(name="Loop", traits=Trait.STATEFUL, feeds={0: 3, 1: True}, gradient=_UNROLL),
    Operator(name="Scan", traits=Trait.STATEFUL, gradient=_UNROLL),
    Operator(name="SequenceMap", traits=Trait.STATEFUL),
    Operator(name="QuantizeLinear", traits=_STORED | Trait.ROUNDS),
    Operator(name="DequantizeLinear", traits=_STORED),
    Operator(name="DynamicQuantizeLinear", traits=_STORED | Trait.ROUNDS),
)  # fmt: skip
