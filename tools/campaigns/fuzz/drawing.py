"""One graph being drawn: values of known type and shape, nodes on them, subgraphs and functions inside.

Shapes are concrete while drawing. Sizes that stand for a free dimension (`SYMBOLS`) are recognisable, so that
the finished graph can declare them as symbols, leave them anonymous, and be run at other sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from fuseline.tools.campaigns.fuzz.probe import takes

__all__ = [
    "FLOATS",
    "INTEGERS",
    "SYMBOLS",
    "Drawing",
    "Input",
    "Unfit",
    "Value",
    "allowed_types",
    "numpy_type",
]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

SYMBOLS = {"N": 3, "S": 5, "T": 7, "W": 6}
STATIC = (1, 2, 2, 4, 4, 8)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
INTEGERS = (TensorProto.INT64, TensorProto.INT32)
ELEMENT_LIMIT = 4096

_FRESH_TYPES = (
    *(TensorProto.FLOAT,) * 6,
    *(TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL) * 2,
    *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16),
    *(TensorProto.UINT32, TensorProto.UINT64, TensorProto.BFLOAT16, TensorProto.STRING),
)


class Unfit(Exception):
    """This draw cannot be completed on this graph; another one is tried."""


@dataclass(frozen=True)
class Value:
    name: str
    dtype: int
    shape: Shape
    content: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Input:
    """A graph input; `kind` and `bound` say how its elements are drawn."""

    name: str
    dtype: int
    shape: Shape
    kind: str = "any"
    bound: int = 0


@cache
def schema(op: str, opset: int, domain: str = "") -> onnx.defs.OpSchema:
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError as error:
        raise Unfit(op) from error


@cache
def allowed_types(op: str, opset: int, position: int) -> frozenset[int]:
    """Element types that the schema takes at an input."""
    inputs = schema(op, opset).inputs
    formal = inputs[min(position, len(inputs) - 1)]
    names = [t[7:-1] for t in formal.types if t.startswith("tensor(")]
    return frozenset(_BY_NAME[n] for n in names if n in _BY_NAME)


_BY_NAME = {
    "float": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    **{n.lower(): t for n, t in TensorProto.DataType.items() if n not in ("FLOAT", "DOUBLE", "UNDEFINED")},
}


def numpy_type(dtype: int) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(dtype)


@dataclass
class Drawing:
    """A graph, a branch, a loop body or a function body."""

    chance: random.Random
    opset: int
    main_float: int = TensorProto.FLOAT
    parent: Drawing | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    functions: dict[str, onnx.FunctionProto] = field(default_factory=dict)
    closed: bool = False
    """A function body: it sees nothing of the graph around it and has no inputs of its own making."""

    def __post_init__(self) -> None:
        self._root: Drawing = self.parent._root if self.parent is not None else self
        if self.parent is None:
            self._counter = 0

    # -- chance

    def maybe(self, probability: float) -> bool:
        return self.chance.random() < probability

    def choose(self, options: Iterable[Any]) -> Any:
        options = list(options)
        if not options:
            raise Unfit("nothing to choose from")
        return self.chance.choice(options)

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        rank = self.chance.choices(range(low, high + 1), [1 if r == 0 else 4 for r in range(low, high + 1)])[
            0
        ]
        return tuple(self.size() for _ in range(rank))

    def size(self) -> int:
        if self.maybe(0.02):
            return 0
        return int(self.choose(SYMBOLS.values() if self.maybe(0.45) else STATIC))

    def axis(self, value: Value) -> int:
        """An axis, sometimes counted from the end."""
        if not value.shape:
            raise Unfit("a scalar has no axis")
        axis = self.chance.randrange(value.rank)
        return axis - value.rank if self.maybe(0.4) else axis

    def axes(self, value: Value, at_least: int = 1) -> list[int]:
        if value.rank < at_least:
            raise Unfit("too few axes")
        count = self.chance.randint(at_least, value.rank)
        axes = sorted(self.chance.sample(range(value.rank), count))
        return [a - value.rank for a in axes] if self.maybe(0.3) else axes

    # -- values

    def name(self) -> str:
        self._root._counter += 1
        return f"v{self._root._counter}"

    def visible(self) -> list[Value]:
        if self.parent is None or self.closed:
            return self.values
        # What belongs to the subgraph itself comes thrice, so that captures do not crowd it out.
        return self.values * 3 + self.parent.visible()

    def pick(
        self,
        types: Iterable[int],
        rank: tuple[int, int] = (0, 4),
        where: Callable[[Value], bool] = lambda _: True,
        fresh: float = 0.12,
    ) -> Value:
        """A value that is there already, mostly a recent one, or a fresh one."""
        types = set(types)
        if not self.maybe(fresh):
            fitting = [
                v for v in self.visible() if v.dtype in types and rank[0] <= v.rank <= rank[1] and where(v)
            ]
            if fitting:
                late = self.maybe(0.6)
                return self.chance.choice(fitting[-3:] if late else fitting)
        likely: list[int] = [t for t in _FRESH_TYPES if t in types] or sorted(types)
        dtype = (
            self.main_float if self.main_float in types and self.maybe(0.6) else self.chance.choice(likely)
        )
        made = self.fresh(dtype, self.shape(*rank))
        if not where(made):
            raise Unfit("the fresh value does not fit")
        return made

    def pick_float(self, rank: tuple[int, int] = (0, 4), **more: Any) -> Value:
        return self.pick((self.main_float,) if self.maybe(0.8) else FLOATS, rank, **more)

    def fresh(self, dtype: int, shape: Shape, kind: str = "any", bound: int = 0) -> Value:
        """An input where a free dimension is in it, or else an input, an initializer or a Constant."""
        if int(np.prod(shape)) > ELEMENT_LIMIT:
            raise Unfit("too large")
        free = any(s in SYMBOLS.values() for s in shape)
        if self.closed or dtype in (TensorProto.BFLOAT16, TensorProto.STRING):
            return self.constant(random_content(self.chance, dtype, shape, kind, bound))
        if self.maybe(0.9 if free else 0.35):
            return self.input(dtype, shape, kind, bound)
        return self.constant(random_content(self.chance, dtype, shape, kind, bound))

    def input(self, dtype: int, shape: Shape, kind: str = "any", bound: int = 0) -> Value:
        root = self._root
        # Inputs belong to the outermost graph; subgraphs capture them, and functions cannot.
        if self._inside_function():
            return self.constant(random_content(self.chance, dtype, shape, kind, bound))
        value = Value(f"x{len(root.inputs)}", dtype, shape)
        root.inputs.append(Input(value.name, dtype, shape, kind, bound))
        root.values.append(value)
        return value

    def _inside_function(self) -> bool:
        scope: Drawing | None = self
        while scope is not None:
            if scope.closed:
                return True
            scope = scope.parent
        return False

    def constant(self, content: Array) -> Value:
        """An initializer or a Constant node, of this graph or of one around it."""
        content = np.asarray(content)
        scope = self
        while scope.parent is not None and not scope.closed and self.maybe(0.5):
            scope = scope.parent
        name = scope.name()
        tensor = numpy_helper.from_array(content, name)
        if scope.closed or scope._inside_function() or self.maybe(0.4):
            node = helper.make_node("Constant", [], [name])
            tensor.name = ""
            node.attribute.append(helper.make_attribute("value", tensor))
            scope.nodes.append(node)
        else:
            scope.initializers.append(tensor)
        value = Value(name, tensor.data_type, content.shape, content)
        scope.values.append(value)
        return value

    def ints(self, *numbers: int) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def number(self, number: float, like: Value, shape: Shape = ()) -> Value:
        return self.constant(np.full(shape, number, numpy_type(like.dtype)))

    # -- nodes

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int = 1,
        shapes: Sequence[Shape] | None = None,
        types: Sequence[int] | None = None,
        **attributes: Any,
    ) -> list[Value]:
        """Append a node; Unfit where the schema or ONNX Runtime does not take it. `shapes` and `types` say
        what inference cannot know."""
        names = [v.name if v is not None else "" for v in inputs]
        results = [self.name() for _ in range(outputs)]
        node = helper.make_node(op, names, results)
        # An empty list does not say what it is a list of; here it is always of integers.
        empty = {k for k, v in attributes.items() if v == []}
        for key, content in attributes.items():
            kind = onnx.AttributeProto.INTS if key in empty else None
            node.attribute.append(helper.make_attribute(key, content, attr_type=kind))
        if not takes(node, [v.dtype if v is not None else None for v in inputs], self.opset):
            raise Unfit(f"ONNX Runtime has no {op} for these types")
        if shapes is None or types is None:
            inferred = self._infer(node, inputs)
            types = [t for t, _ in inferred] if types is None else types
            shapes = [s for _, s in inferred] if shapes is None else shapes
        if any(int(np.prod(s)) > ELEMENT_LIMIT or min(s, default=0) < 0 for s in shapes):
            raise Unfit("too large, or smaller than nothing")
        self.nodes.append(node)
        made = [Value(n, t, tuple(s)) for n, t, s in zip(results, types, shapes, strict=True)]
        self.values.extend(made)
        return made

    def one(self, op: str, *inputs: Value | None, **more: Any) -> Value:
        return self.add(op, inputs, **more)[0]

    def _infer(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> list[tuple[int, Shape]]:
        types = {v.name: helper.make_tensor_type_proto(v.dtype, v.shape) for v in inputs if v is not None}
        data = {
            v.name: numpy_helper.from_array(v.content)
            for v in inputs
            if v is not None and v.content is not None
        }
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema(node.op_type, self.opset),
                node,
                types,
                data,
                opset_imports=[helper.make_opsetid("", self.opset)],
                ir_version=9,
            )
        except Exception as error:  # onnx raises several types for what its schemas refuse
            raise Unfit(f"{node.op_type}: {error}") from error
        return [_known_type(found.get(name)) for name in node.output]

    # -- what surrounds

    def child(self, closed: bool = False) -> Drawing:
        inner = Drawing(self.chance, self.opset, self.main_float, self, closed=closed)
        inner.functions = self._root.functions
        return inner


def _known_type(found: onnx.TypeProto | None) -> tuple[int, Shape]:
    if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        raise Unfit("inference does not know the result")
    dims = found.tensor_type.shape.dim
    if not all(d.HasField("dim_value") for d in dims):
        raise Unfit("inference does not know the result's shape")
    return found.tensor_type.elem_type, tuple(d.dim_value for d in dims)


def random_content(
    chance: random.Random, dtype: int, shape: Shape, kind: str = "any", bound: int = 0
) -> Array:
    """Elements of the kind: any, positive, mask, index (below `bound`) or label (the same, or ignored)."""
    draw = np.random.default_rng(chance.getrandbits(32))
    if dtype == TensorProto.STRING:
        return draw.choice(np.array(["", "a", "bc", "a"], object), shape) if shape else np.array("a", object)
    target = numpy_type(dtype)
    if kind == "index":
        return draw.integers(0, max(bound, 1), shape).astype(target)
    if kind == "label":
        return np.where(draw.random(shape) < 0.2, -100, draw.integers(0, max(bound, 1), shape)).astype(target)
    if kind == "mask":
        return _mask(draw, shape).astype(target)
    if dtype == TensorProto.BOOL:
        return np.asarray(draw.random(shape) < 0.5)
    if dtype in (*FLOATS, TensorProto.BFLOAT16):
        content = draw.uniform(0.3, 1.5, shape) if kind == "positive" else draw.standard_normal(shape)
        return np.asarray(content).astype(target)
    limits = np.iinfo(target)
    if kind == "positive":
        return draw.integers(1, 5, shape).astype(target)
    if chance.random() < 0.1:
        return draw.choice(np.array([limits.min, limits.max, 0, 1], target), shape).astype(target)
    return draw.integers(max(-4, limits.min), 6, shape).astype(target)


def _mask(draw: np.random.Generator, shape: Shape) -> Array:
    """Padding on the right or left, none, in places, or rows of nothing else, row by row."""
    if not shape:
        return np.array(1)
    rows, length = int(np.prod(shape[:-1])), shape[-1]
    kept = draw.integers(0, length + 1, (rows, 1))
    position = np.arange(length)
    style = draw.integers(0, 5)
    if style == 0:
        mask = position < np.maximum(kept, 1)
    elif style == 1:
        mask = position >= length - np.maximum(kept, 1)
    elif style == 2:
        mask = np.ones((rows, length), bool)
    elif style == 3:
        mask = (position < kept) & (draw.random((rows, 1)) < 0.7)
    else:
        mask = draw.random((rows, length)) < 0.6
    return mask.reshape(shape)
