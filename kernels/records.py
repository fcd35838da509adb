"""The records of this library's operators, for the engine."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.operators import Operator as Record
from fuseline.engine.operators import Trait, register
from fuseline.engine.operators import gradient as gradients
from fuseline.engine.operators.costs import Cost, count
from fuseline.engine.operators.evaluation import Made, Operands
from fuseline.engine.shapes.dims import dims_of, known, multiply
from fuseline.engine.shapes.site import Site
from fuseline.kernels.loader import library_path
from fuseline.kernels.operator import DOMAIN, Operator
from fuseline.kernels.ops import OPERATORS
from fuseline.kernels.ops.optimizer import OPTIMIZER_OPERATORS

__all__ = ["record_of", "register_records"]


_FEW = 8
"""Operations for an element of an operator that is no product: half of what a Gelu takes."""


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
        positions=_positions(operator),
        cost=_cost(operator),
        gradient=_gradient(operator),
        in_place=operator.in_place,
        ratio=ratio,
        declared=operator.schema(),
        library=library_path,
    )


def _positions(operator: Operator) -> Callable[[Model, ir.Node, int, int], Mapping[int, int] | None] | None:
    """Along the axes `*R` that the first output shares with operands, all operators treat positions alike."""
    result = operator.outputs[0].shape.split(",")
    if result[0] != "*R":
        return None
    alike = [place for place, port in enumerate(operator.inputs) if port.shape.startswith("*R")]

    def positions(model: Model, node: ir.Node, axis: int, rank: int) -> Mapping[int, int] | None:
        shapes = {place: dims_of(node.inputs[place]) for place in alike}
        if axis >= rank - len(result) + 1 or None in shapes.values():
            return None
        return {place: axis for place, dims in shapes.items() if dims is not None and 0 not in dims}

    return positions


def _cost(operator: Operator) -> Callable[[Site], Cost]:
    def cost(site: Site) -> Cost:
        given = _shapes(operator, site)
        threads = os.cpu_count() or 1
        workspace = operator.workspace_bytes(given, threads) if given is not None else (None, None)
        if operator.operations is not None:
            return Cost(operator.operations(operator.sizes(given)) if given is not None else None, *workspace)
        shape = known(site.dims())
        # Whichever axis a product sums over, the longest one tells that it is one.
        each = max(shape, default=1) if operator.product and shape is not None else _FEW
        return Cost(multiply(2 * each, count(site.value(0))), *workspace)

    return cost


def _shapes(operator: Operator, site: Site) -> dict[str, tuple[int, ...]] | None:
    """The shapes of all inputs in numbers; None where one is not known, or they do not fit together."""
    ports = [port for port in operator.inputs if not port.variadic]
    shapes = {port.name: known(site.dims(i)) for i, port in enumerate(ports)}
    given = {name: shape for name, shape in shapes.items() if shape is not None}
    return given if len(given) == len(shapes) and operator.bind(given) is not None else None


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
