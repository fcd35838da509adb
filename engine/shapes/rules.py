"""Output types and shapes of the common operators, with symbolic dimensions.

A rule gets the node with what is known of its inputs and returns one (dtype, dims) per output; None stands
for what it cannot tell. The operators' records name their rules; those without one go to ONNX's own
inference.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fuseline.engine.nodes import attribute
from fuseline.engine.shapes import dims
from fuseline.engine.shapes.dims import Dim, Dims
from fuseline.engine.shapes.site import Site, Typing

__all__ = [
    "broadcast",
    "cast",
    "comparison",
    "concat",
    "constant_of_shape",
    "dropout",
    "elementwise",
    "expand",
    "flatten",
    "gather",
    "gemm",
    "matmul",
    "normalization",
    "predicate",
    "reduce_",
    "reshape",
    "reshaped",
    "same",
    "shape",
    "size",
    "slice_",
    "split",
    "squeeze",
    "transpose",
    "unsqueeze",
    "where",
]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


def broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    """The common shape of operands; None inside where it depends on what is not known."""
    rank = 0
    for shape in shapes:
        if shape is None:
            return None
        rank = max(rank, len(shape))
    padded = [(1,) * (rank - len(s)) + s for s in shapes if s is not None]
    return tuple(_broadcast_dim(column) for column in zip(*padded, strict=True))


def _broadcast_dim(column: Sequence[Dim]) -> Dim:
    wider = {d for d in column if d != 1}
    # What is min(limit,S) long goes together with S only where it is S, or 1, long.
    wider = {d for d in wider if d is None or dims.uncapped(d) not in wider - {None}}
    if len(wider) <= 1:
        return next(iter(wider), 1)
    # A number other than 1 decides, whatever the symbols turn out to be.
    return next((d for d in wider if isinstance(d, int)), None)


def same(site: Site) -> list[Typing]:
    return [(site.dtype(), site.dims())]


def elementwise(site: Site) -> list[Typing]:
    return [(site.dtype(), broadcast([site.dims(i) for i in range(len(site.node.inputs))]))]


def comparison(site: Site) -> list[Typing]:
    return [(BOOL, broadcast([site.dims(0), site.dims(1)]))]


def predicate(site: Site) -> list[Typing]:
    return [(BOOL, site.dims())]


def where(site: Site) -> list[Typing]:
    return [(site.dtype(1), broadcast([site.dims(0), site.dims(1), site.dims(2)]))]


def cast(site: Site) -> list[Typing]:
    return [(ir.DataType(site.attribute("to", 1)), site.dims())]


def shape(site: Site) -> list[Typing]:
    found = site.values[site.node.outputs[0]]
    return [(INT64, (len(found.items),) if found is not None else (None,))]


def size(site: Site) -> list[Typing]:
    return [(INT64, ())]


def gather(site: Site) -> list[Typing]:
    data, indices = site.dims(0), site.dims(1)
    if data is None or indices is None:
        return [(site.dtype(), None)]
    axis = site.attribute("axis", 0) % max(len(data), 1)
    return [(site.dtype(), data[:axis] + indices + data[axis + 1 :])]


def concat(site: Site) -> list[Typing]:
    shapes = [site.dims(i) for i in range(len(site.node.inputs))]
    found = [s for s in shapes if s is not None]
    if len(found) != len(shapes) or not found[0]:
        return [(site.dtype(), None)]
    axis = site.attribute("axis", 0) % len(found[0])
    total: Dim = 0
    for one in found:
        total = dims.add(total, one[axis])
    merged = [next((s[i] for s in found if isinstance(s[i], int)), d) for i, d in enumerate(found[0])]
    merged[axis] = total
    return [(site.dtype(), tuple(merged))]


def reshape(site: Site) -> list[Typing]:
    data, target = site.dims(0), site.values[site.value(1)]
    if target is None:
        rank = site.dims(1)
        unknown = (None,) * rank[0] if rank and isinstance(rank[0], int) else None
        return [(site.dtype(), unknown)]
    return [(site.dtype(), reshaped(data, target.items, bool(site.attribute("allowzero", 0))))]


def reshaped(data: Dims | None, target: Dims, allow_zero: bool) -> Dims:
    made: list[Dim] = []
    for index, wanted in enumerate(target):
        if wanted == 0 and not allow_zero:
            wanted = data[index] if data is not None and index < len(data) else None
        made.append(wanted)
    if -1 in made:
        made[made.index(-1)] = _left_over(data, [d for d in made if d != -1])
    return tuple(made)


def _left_over(data: Dims | None, given: list[Dim]) -> Dim:
    """What −1 stands for: the quotient of all elements and those given. Nothing can be 0 in the divisor,
    since no runtime decides a −1 then; so whole dimensions cancel, however they are written."""
    if data is None:
        return None
    rest = list(data)
    for dim in tuple(given):
        if dim is not None and dim in rest:
            rest.remove(dim)
            given.remove(dim)
    return dims.divide(dims.product(rest), dims.product(given))


def flatten(site: Site) -> list[Typing]:
    data = site.dims()
    if data is None:
        return [(site.dtype(), (None, None))]
    axis = site.attribute("axis", 1)
    axis = axis + len(data) if axis < 0 else axis
    return [(site.dtype(), (dims.product(data[:axis]), dims.product(data[axis:])))]


def transpose(site: Site) -> list[Typing]:
    data = site.dims()
    if data is None:
        return [(site.dtype(), None)]
    perm = site.node.attributes.get_ints("perm") or range(len(data) - 1, -1, -1)
    return [(site.dtype(), tuple(data[i] for i in perm))]


def squeeze(site: Site) -> list[Typing]:
    data, axes = site.dims(), site.values.axes(site.node)
    if data is None or axes is None:
        return [(site.dtype(), None)]
    if not axes:
        certain = all(isinstance(d, int) for d in data)
        return [(site.dtype(), tuple(d for d in data if d != 1) if certain else None)]
    gone = {a % len(data) for a in axes}
    return [(site.dtype(), tuple(d for i, d in enumerate(data) if i not in gone))]


def unsqueeze(site: Site) -> list[Typing]:
    data, axes = site.dims(), site.values.axes(site.node)
    if data is None or axes is None:
        return [(site.dtype(), None)]
    rank = len(data) + len(axes)
    new, rest = {a % rank for a in axes}, iter(data)
    return [(site.dtype(), tuple(1 if i in new else next(rest) for i in range(rank)))]


def expand(site: Site) -> list[Typing]:
    target = site.values[site.value(1)]
    if target is None or any(isinstance(d, int) and d < 0 for d in target.items):
        return [(site.dtype(), None)]
    return [(site.dtype(), broadcast([site.dims(), target.items]))]


def constant_of_shape(site: Site) -> list[Typing]:
    value = attribute(site.node, "value", None)
    target = site.values[site.value(0)]
    return [(value.dtype if value is not None else ir.DataType.FLOAT, target.items if target else None)]


def slice_(site: Site) -> list[Typing]:
    data, bounds = site.dims(), _slice_bounds(site)
    if data is None:
        return [(site.dtype(), None)]
    if bounds is None:
        return [(site.dtype(), (None,) * len(data))]
    made = list(data)
    for axis, start, end, step in bounds:
        made[axis] = _sliced(data[axis], start, end, step)
    return [(site.dtype(), tuple(made))]


def _slice_bounds(site: Site) -> list[tuple[int, Dim, Dim, Dim]] | None:
    """(axis, start, end, step) for each axis that is cut; None where not even the axes are known."""
    if site.opset < 10:
        attributes = site.node.attributes
        starts: Dims = tuple(attributes.get_ints("starts", ()))
        ends: Dims = tuple(attributes.get_ints("ends", ()))
        axes = tuple(attributes.get_ints("axes", ())) or tuple(range(len(starts)))
        return [(axis, start, end, 1) for axis, start, end in zip(axes, starts, ends, strict=True)]
    given = site.numbers(3)
    first, last, by = (site.values[site.value(i)] for i in (1, 2, 4))
    count = next((len(k) for k in (given, *(k.items for k in (first, last, by) if k)) if k is not None), None)
    if count is None or (given is None and site.value(3) is not None):
        return None
    unknown: Dims = (None,) * count
    return list(
        zip(
            given if given is not None else range(count),
            first.items if first is not None else unknown,
            last.items if last is not None else unknown,
            by.items if by is not None else unknown if site.value(4) is not None else (1,) * count,
            strict=True,
        )
    )


def _sliced(size: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        if not step or dims.is_contested(end, step):
            return None
        return len(dims.taken(size, start, end, step))
    if step != 1 or start != 0:
        return None
    if isinstance(end, int):
        return size if end >= 1 << 30 else None
    return dims.at_most(size, end) if isinstance(size, int) else size if end == size else None


def split(site: Site) -> list[Typing]:
    data, count = site.dims(), len(site.node.outputs)
    if data is None:
        return [(site.dtype(), None)] * count
    axis = site.attribute("axis", 0) % len(data)
    sizes = _parts(site, data[axis], count)
    return [(site.dtype(), (*data[:axis], s, *data[axis + 1 :])) for s in sizes]


def _parts(site: Site, whole: Dim, count: int) -> Sequence[Dim]:
    """The sizes that Split makes: given, computed at run time, or as equal as they can be."""
    if site.value(1) is not None:
        given = site.values[site.value(1)]
        return given.items if given is not None and len(given.items) == count else (None,) * count
    listed = site.node.attributes.get_ints("split")
    if listed is not None:
        return tuple(listed)
    if isinstance(whole, int):
        each = -(-whole // count)
        rest = whole - each * (count - 1)
        return (*(each,) * (count - 1), rest) if rest >= 0 else (None,) * count
    # The last part may be smaller where the number of parts is given.
    return (dims.divide(whole, count),) * count


def matmul(site: Site) -> list[Typing]:
    a, b = site.dims(0), site.dims(1)
    if a is None or b is None or not a or not b:
        return [(site.dtype(), None)]
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    batch = broadcast([left[:-2], right[:-2]])
    assert batch is not None
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return [(site.dtype(), batch + rows + columns)]


def gemm(site: Site) -> list[Typing]:
    a, b = site.dims(0), site.dims(1)
    rows = a[site.attribute("transA", 0)] if a is not None and len(a) == 2 else None
    columns = b[1 - site.attribute("transB", 0)] if b is not None and len(b) == 2 else None
    return [(site.dtype(), (rows, columns))]


def reduce_(site: Site) -> list[Typing]:
    data = site.dims()
    by_attribute = site.opset < (13 if site.node.op_type == "ReduceSum" else 18)
    given = site.node.attributes.get_ints("axes", ()) if by_attribute else site.numbers(1)
    absent = by_attribute or site.value(1) is None
    axes = tuple(given) if given is not None else () if absent else None
    if data is None or axes is None:
        return [(site.dtype(), None)]
    if not axes and site.attribute("noop_with_empty_axes", 0):
        return [(site.dtype(), data)]
    gone = {a % len(data) for a in axes} if axes else set(range(len(data)))
    keep = site.attribute("keepdims", 1)
    made = [1 if i in gone else d for i, d in enumerate(data) if keep or i not in gone]
    return [(site.dtype(), tuple(made))]


def normalization(site: Site) -> list[Typing]:
    """One output like the input; statistics are left to others."""
    return [(site.dtype(), site.dims()), *[(None, None)] * (len(site.node.outputs) - 1)]


def dropout(site: Site) -> list[Typing]:
    mask = BOOL if site.opset >= 10 else site.dtype()
    return [(site.dtype(), site.dims()), (mask, site.dims())][: len(site.node.outputs)]
