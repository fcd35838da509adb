"""The records of this library's operators, for the engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from fuseline.engine.operators import Operator as Record
from fuseline.engine.operators import Trait, register
from fuseline.engine.operators import gradient as gradients
from fuseline.engine.operators.evaluation import Made, Operands
from fuseline.kernels.loader import library_path
from fuseline.kernels.operator import DOMAIN, Operator
from fuseline.kernels.ops import OPERATORS
from fuseline.kernels.ops.optimizer import OPTIMIZER_OPERATORS

__all__ = ["record_of", "register_records"]


@functools.cache
def register_records() -> None:
    """Once per process, under whatever name the package is imported: others look for a `kernels` too."""
    register(*(record_of(operator) for operator in OPERATORS.values()))


def record_of(operator: Operator) -> Record:
    """What the engine knows about an operator of this library."""
    ratio = next((i for i, port in enumerate(operator.inputs) if port.name == "ratio"), None)
    stateful = operator in OPTIMIZER_OPERATORS
    random = Trait.RANDOM if ratio is not None else Trait.NONE
    return Record(
        name=operator.name,
        domain=DOMAIN,
        traits=Trait.STATEFUL if stateful else random,
        shape=operator.infer,
        evaluate=_evaluation(operator),
        gradient=_gradient(operator),
        ratio=ratio,
        declared=operator.schema(),
        library=library_path,
    )


def _gradient(operator: Operator) -> gradients.Gradient:
    if not operator.gradient:
        return gradients.NoGradient()
    nodes = tuple(
        gradients.GradientNode(n.op_type, n.inputs, n.outputs, n.domain, n.attributes)
        for n in operator.gradient
    )
    stopped = frozenset(i for i, port in enumerate(operator.inputs) if port.type != "float")
    return gradients.Defined(nodes, stopped)


def _evaluation(operator: Operator) -> Callable[[Operands], Made]:
    def evaluate(operands: Operands) -> Made:
        given: Mapping[str, int | float] = {k: a.value for k, a in operands.node.attributes.items()}
        outputs = operator.reference(*operands.inputs, **(dict(operator.attributes) | dict(given)))
        return list(outputs[: len(operands.node.outputs)])

    return evaluate
