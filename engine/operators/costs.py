"""What a node costs: operations and workspace by rules that records name, traffic from the shapes.

Sizes may be symbolic, and so may costs; what is not known is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.shapes.dims import Dim, Dims, add, dims_of, divide, multiply, product
from fuseline.engine.shapes.rules import broadcast
from fuseline.engine.shapes.site import Site

__all__ = [
    "Cost",
    "convolution",
    "count",
    "gemm",
    "matmul",
    "nothing",
    "per_element",
    "per_input_element",
    "size_in_bytes",
    "traffic",
    "where",
]


@dataclass(frozen=True)
class Cost:
    """Arithmetic operations, and bytes of scratch memory beside inputs and outputs.

    What the tasks hold that a node starts is kept apart from what it holds itself, and adds to it. Both
    are kept between runs; `passing` is taken when the node runs, and given back when it has run.
    """

    operations: Dim
    workspace: Dim = 0
    task_workspace: Dim = 0
    passing: Dim = 0


def traffic(node: ir.Node) -> Dim:
    """The bytes of all inputs and outputs."""
    total: Dim = 0
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.name:
            total = add(total, size_in_bytes(value))
    return total


def size_in_bytes(value: ir.Value) -> Dim:
    """None where shape or type are not known, and of strings, which have any length."""
    return _bytes(value.dtype, dims_of(value))


def _bytes(dtype: ir.DataType | None, dims: Dims | None) -> Dim:
    if dims is None or dtype is None or dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return None
    bits = multiply(product(dims), dtype.bitwidth)
    return -(-bits // 8) if isinstance(bits, int) else divide(bits, 8)


def nothing(site: Site) -> Cost:
    return Cost(0)


def per_element(operations: int) -> Callable[[Site], Cost]:
    """So many operations for each element of the first output."""

    def rule(site: Site) -> Cost:
        return Cost(multiply(operations, count(site.node.outputs[0])))

    return rule


def per_input_element(operations: int) -> Callable[[Site], Cost]:
    """So many operations for each element of the first input."""

    def rule(site: Site) -> Cost:
        return Cost(multiply(operations, count(site.value(0))))

    return rule


def matmul(site: Site) -> Cost:
    left = site.dims(0)
    inner = left[-2 if site.attribute("transA", 0) and len(left) > 1 else -1] if left else None
    return Cost(multiply(multiply(2, inner), count(site.node.outputs[0])))


def gemm(site: Site) -> Cost:
    product_, made = matmul(site), count(site.node.outputs[0])
    return Cost(add(product_.operations, made) if site.value(2) is not None else product_.operations)


def convolution(site: Site) -> Cost:
    """Each output element is a product over the kernel and the channels of one group."""
    weight = site.dims(1)
    each = product(weight[1:]) if weight else None
    return Cost(multiply(multiply(2, each), count(site.node.outputs[0])))


def where(site: Site) -> Cost:
    """ONNX Runtime's kernel selects what it takes of either operand apart, and then merges both."""
    made, condition = site.node.outputs[0], site.dims(0)
    chosen = [broadcast([condition, site.dims(index)]) for index in (1, 2)]
    sizes = [_bytes(made.dtype, dims) for dims in chosen]
    return Cost(count(made), passing=add(*sizes))


def count(value: ir.Value | None) -> Dim:
    """The number of elements."""
    dims = dims_of(value)
    return product(dims) if dims is not None else None
