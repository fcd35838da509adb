"""A model at concrete sizes: every symbolic dimension of its inputs replaced by a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from fuseline.engine.errors import ModelError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.nodes import is_op
from fuseline.engine.shapes.dims import Dims, dims_of, evaluate, known, names_in, shape_of
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["at_sizes", "sizes_of", "symbols", "told_sizes"]


def symbols(model: Model) -> list[str]:
    """The symbolic dimensions of the inputs, in the order of their appearance."""
    found = [name for value in model.graph.inputs for d in dims_of(value) or () for name in names_in(d)]
    return list(dict.fromkeys(found))


def sizes_of(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """What the symbolic dimensions are where inputs have these shapes; others count as 1."""
    return dict.fromkeys(symbols(model), 1) | told_sizes(model, shapes)


def told_sizes(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Those of the symbolic dimensions that follow from these shapes of inputs."""
    given = [
        (dim, int(size))
        for value in model.graph.inputs
        for dim, size in zip(dims_of(value) or (), shapes.get(str(value.name), ()), strict=False)
        if isinstance(dim, str)
    ]
    found = {dim: size for dim, size in given if names_in(dim) == (dim,)}
    for dim, size in given:
        _solve(dim, size, found)
    return found


def _solve(dim: str, size: int, found: dict[str, int]) -> None:
    """Note the one size that is missing in a sum such as `past + sequence`."""
    missing = [name for name in names_in(dim) if name not in found]
    if len(missing) == 1:
        none, one = (evaluate(dim, {**found, missing[0]: value}) for value in (0, 1))
        if isinstance(none, int) and isinstance(one, int) and one > none:
            found[missing[0]] = max(0, (size - none) // (one - none))


def at_sizes(model: Model, sizes: Mapping[str, int]) -> Model:
    """A copy whose shapes are numbers as far as they follow from the sizes; the weights are shared.

    How many elements are found only while running (the labelled tokens of a batch) counts as all of them.
    """
    names = symbols(model)
    for name in sizes:
        if name not in names:
            raise ModelError(
                f"no input has a dimension {name!r}; the dimensions are {', '.join(names) or 'all numbers'}",
                hint=did_you_mean(name, names),
            )
    copy = model.clone()
    for value in copy.graph.inputs:
        dims = dims_of(value)
        if dims is not None:
            value.shape = shape_of(_numbers(dims, sizes))
    values = ShapeValues(copy)
    for node in copy.graph:
        values.visit(node)
        for value, (dtype, dims) in zip(node.outputs, infer(node, values) or (), strict=False):
            _update(value, dtype, dims, sizes)
        for value in node.outputs:
            _update(value, None, dims_of(value), sizes)
        if is_op(node, "NonZero"):
            _all_found(node)
    return copy


def _all_found(node: ir.Node) -> None:
    source = known(dims_of(node.inputs[0])) if node.inputs[0] is not None else None
    if source is not None:
        node.outputs[0].shape = ir.Shape([len(source), math.prod(source)])


def _numbers(dims: Dims, sizes: Mapping[str, int]) -> Dims:
    return tuple(sizes.get(d, evaluate(d, sizes)) if isinstance(d, str) else d for d in dims)


def _update(value: ir.Value, dtype: ir.DataType | None, dims: Dims | None, sizes: Mapping[str, int]) -> None:
    if dtype is not None and value.type is None:
        value.type = ir.TensorType(dtype)
    if dims is None:
        return
    old = dims_of(value)
    found = _numbers(dims, sizes)
    if old is not None and len(old) == len(found):
        found = tuple(b if a is None else a for a, b in zip(found, _numbers(old, sizes), strict=True))
    value.shape = shape_of(found)
