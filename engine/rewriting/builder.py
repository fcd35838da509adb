"""Builds nodes: for fusions and for hand-written passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.errors import PassError
from fuseline.engine.initializers import add_initializer
from fuseline.engine.model import Model
from fuseline.engine.nodes import STANDARD_DOMAINS, opset_at, root_of
from fuseline.engine.operators.signatures import Signature, signature
from fuseline.engine.rewriting.checks import check_node
from fuseline.engine.rewriting.forms import in_form
from fuseline.engine.shapes.dims import Dims, dims_of, shape_of
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.values import ShapeValues

if TYPE_CHECKING:
    from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["Attribute", "Builder", "Operand"]

Array = npt.NDArray[Any]
Number = bool | float | Sequence[int] | Sequence[float] | Array | np.generic
Operand = ir.Value | Number | None
Attribute = (
    int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | ir.TensorProtocol | ir.Graph | None
)


class NodeMaker(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, *inputs: Operand, _outputs: int | Sequence[bool], _domain: str = "", **attributes: Attribute
    ) -> tuple[ir.Value, ...]: ...
    @overload
    def __call__(self, *inputs: Operand, _domain: str = "", **attributes: Attribute) -> ir.Value: ...


class Builder:
    """`op.Gelu(x, _domain="com.microsoft")` makes a node and returns its output.

    Operators are given in their newest form; the node gets the form that the opset at hand has. Inputs are
    values, None, or numbers and arrays, which become constants: a number takes the type that the operator
    wants beside its other inputs, or else, if it is not whole, the element type of the place. With
    `_outputs`, a number or one boolean per output saying whether it is wanted, the result is a tuple.
    Every node is checked at once, and types and shapes of its outputs are inferred.
    """

    def __init__(self, rewriter: Rewriter, place: ir.Node | ir.Graph) -> None:
        self.model: Model = rewriter.model
        self.nodes: list[ir.Node] = []
        self.graph: ir.Graph = _graph_of(place)
        self.opset = opset_at(self.model, self.graph)
        self._rewriter = rewriter
        self._stem = (
            rewriter.pass_name if isinstance(place, ir.Graph) else f"{rewriter.pass_name}/{place.name}"
        )
        self._dtype = _element_type(place)
        self._constants: list[ir.Value] = []
        self._values = ShapeValues(self.model, opset=self.opset)

    def __getattr__(self, op_type: str) -> NodeMaker:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def make(*inputs: Operand, **options: Any) -> Any:
            return self.node(op_type, *inputs, **options)

        return make

    @overload
    def node(  # type: ignore[overload-overlap]
        self,
        op_type: str,
        *inputs: Operand,
        _outputs: int | Sequence[bool],
        _domain: str = "",
        **attributes: Attribute,
    ) -> tuple[ir.Value, ...]: ...
    @overload
    def node(
        self,
        op_type: str,
        *inputs: Operand,
        _outputs: None = None,
        _domain: str = "",
        **attributes: Attribute,
    ) -> ir.Value: ...
    def node(
        self,
        op_type: str,
        *inputs: Operand,
        _outputs: int | Sequence[bool] | None = None,
        _domain: str = "",
        **attributes: Any,
    ) -> ir.Value | tuple[ir.Value, ...]:
        """A node and its output; with `_outputs` a tuple of outputs."""
        wanted = [True] * (_outputs or 1) if _outputs is None or isinstance(_outputs, int) else _outputs
        given = {k: v for k, v in attributes.items() if v is not None}
        operands = self._operands(op_type, _domain, inputs)
        if _domain in STANDARD_DOMAINS:
            if op_type == "Shape" and given and self.opset < 15:
                return self._part_of_shape(inputs[0], **given)
            if op_type == "Split" and len(operands) < 2:
                given.setdefault("num_outputs", len(wanted))
            operands, given = in_form(op_type, operands, given, self.opset, self._read)
        made = self._make(op_type, _domain, operands, given, wanted)
        return made[0] if _outputs is None else made

    def copy(
        self,
        node: ir.Node,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        outputs: int | None = None,
    ) -> tuple[ir.Value, ...]:
        """The same node on other inputs, some attributes changed (None: left out), with so many outputs."""
        both = {name: found.value for name, found in node.attributes.items()} | dict(attributes or {})
        given = {k: v for k, v in both.items() if v is not None}
        operands = self._operands(node.op_type, node.domain, inputs)
        wanted = [True] * outputs if outputs is not None else [value.name != "" for value in node.outputs]
        return self._make(node.op_type, node.domain, operands, given, wanted)

    def constant(self, content: Number, name: str = "constant") -> ir.Value:
        """A constant: an initializer, or a Constant node where a graph can hold no initializers."""
        array = self._array(content, None)
        if root_of(self.model, self.graph) is not self.model.graph:
            return self._make("Constant", "", [], {"value": ir.tensor(array)}, [True])[0]
        label = self._rewriter.fresh_name(self.graph, f"{self._stem}/{name}")
        value = add_initializer(self.graph, label, array)
        self._constants.append(value)
        return value

    def again(self, node: ir.Node, inputs: Sequence[Operand]) -> tuple[ir.Value, ...]:
        """The same node once more, on inputs that hold the same: its outputs are what the first ones are."""
        made = self.copy(node, inputs)
        for old, new in zip(node.outputs, made, strict=True):
            new.type, new.shape = old.type, old.shape
        return made

    def declare(
        self, value: ir.Value, *, dtype: ir.DataType | None = None, dims: Dims | None = None
    ) -> ir.Value:
        """Say of a value what no rule finds out; what a rule did find out may not be contradicted."""
        if dtype is not None:
            if value.dtype not in (None, dtype):
                raise PassError(f"{value.name!r} is {value.dtype}, and was declared to be {dtype}")
            value.type = ir.TensorType(dtype)
        if dims is not None:
            known = dims_of(value)
            if known is not None and not _may_be(known, dims):
                raise PassError(f"{value.name!r} has the shape {known}, and was declared to have {dims}")
            value.shape = shape_of(dims)
        return value

    def discard(self) -> None:
        """Forget nodes and constants that will not be used after all."""
        for node in reversed(self.nodes):
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        for value in self._constants:
            del self.graph.initializers[value.name or ""]
        self.nodes.clear()
        self._constants.clear()

    # -- the parts of a node

    def _make(
        self,
        op_type: str,
        domain: str,
        operands: Sequence[ir.Value | Array | None],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool],
    ) -> tuple[ir.Value, ...]:
        found = signature(domain, op_type, self._version(domain))
        given = {k: _attribute(v, found.kinds.get(k) if found else None) for k, v in attributes.items()}
        values = [self.constant(o) if isinstance(o, np.ndarray) else o for o in operands]
        node = ir.node(op_type, _strip(values), given, domain=domain, num_outputs=len(wanted))
        for value, kept in zip(node.outputs, wanted, strict=True):
            value.name = None if kept else ""
        self._rewriter.name(self.graph, node)
        self._infer(node)
        check_node(self.model, node, self.graph)
        self.nodes.append(node)
        return tuple(node.outputs)

    def _infer(self, node: ir.Node) -> None:
        for value, (dtype, dims) in zip(node.outputs, infer(node, self._values) or (), strict=False):
            if dtype is not None:
                value.type = ir.TensorType(dtype)
            if dims is not None:
                value.shape = shape_of(dims)

    def _version(self, domain: str) -> int:
        return self.opset if domain in STANDARD_DOMAINS else opset_at(self.model, self.graph, domain) or 1

    def _operands(
        self, op_type: str, domain: str, inputs: Sequence[Operand]
    ) -> list[ir.Value | Array | None]:
        """The inputs, numbers as arrays of the type that the operator wants there."""
        found = signature(domain, op_type, 0 if domain in STANDARD_DOMAINS else self._version(domain))
        operands: list[ir.Value | Array | None] = []
        for index, item in enumerate(inputs):
            if item is None or isinstance(item, ir.Value):
                operands.append(item)
            else:
                dtype = _wanted_dtype(found, index, inputs) if found is not None else None
                operands.append(self._array(item, dtype))
        return operands

    def _array(self, content: Any, dtype: ir.DataType | None) -> Array:
        if isinstance(content, np.ndarray | np.generic | bool):
            return np.asarray(content)
        array = np.asarray(content)
        if array.dtype.kind not in "bif":
            raise PassError(f"{content!r} is given as an input, which is neither value nor number")
        if dtype is None:
            # A list of nothing is one of axes or sizes, though numpy takes it for floats.
            dtype = self._dtype if array.dtype.kind == "f" and array.size else ir.DataType.INT64
        with np.errstate(over="ignore"):
            made = array.astype(dtype.numpy())
        if array.dtype.kind == "f" and bool((np.isinf(made) & np.isfinite(array)).any()):
            raise PassError(f"{content!r} is more than {dtype.name} can hold")
        return made

    def _read(self, operand: ir.Value | Array) -> Array | None:
        return operand if isinstance(operand, np.ndarray) else constant(self.model, operand)

    def _part_of_shape(self, value: Operand, start: int = 0, end: int | None = None) -> ir.Value:
        """Shape<start, end>, which opset 15 has added."""
        last = np.iinfo(np.int32).max if end is None else end
        return self.Slice(self.Shape(value), [start], [last], [0])


def _may_be(known: Dims, declared: Dims) -> bool:
    pairs = zip(known, declared, strict=False)
    return len(known) == len(declared) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
    )


def _graph_of(place: ir.Node | ir.Graph) -> ir.Graph:
    graph = place if isinstance(place, ir.Graph) else place.graph
    assert isinstance(graph, ir.Graph)
    return graph


def _element_type(place: ir.Node | ir.Graph) -> ir.DataType:
    """What a number that is not whole becomes where nothing else says it."""
    values = () if isinstance(place, ir.Graph) else (*place.inputs, *place.outputs)
    found = (v.dtype for v in values if v is not None and v.dtype is not None)
    return next((d for d in found if d.is_floating_point()), ir.DataType.FLOAT)


def _wanted_dtype(found: Signature, index: int, inputs: Sequence[Operand]) -> ir.DataType | None:
    """The one type that the port takes, or the type that a neighbour gives to both."""
    port = found.input(index)
    if port is None:
        return None
    if port.dtypes is not None and len(port.dtypes) == 1:
        return next(iter(port.dtypes))
    for place, other in enumerate(inputs):
        beside = found.input(place)
        if isinstance(other, ir.Value) and beside is not None and beside.type == port.type:
            return other.dtype
    return None


def _whole(value: Any) -> int:
    if isinstance(value, float | np.floating) and not float(value).is_integer():
        raise PassError(f"{value!r} is given for an attribute that takes whole numbers")
    return int(value)


_NUMBERS: dict[int, Callable[[Any], Any]] = {
    int(ir.AttributeType.FLOAT): float,
    int(ir.AttributeType.INT): _whole,
    int(ir.AttributeType.FLOATS): lambda values: [float(v) for v in values],
    int(ir.AttributeType.INTS): lambda values: [_whole(v) for v in values],
}


def _attribute(value: Any, kind: int | None) -> Any:
    """A number as the attribute has it: 1 where a FLOAT is wanted is 1.0."""
    if kind not in _NUMBERS or isinstance(value, str | bytes):
        return value
    listed = isinstance(value, Sequence | np.ndarray)
    if listed != (kind in (ir.AttributeType.FLOATS, ir.AttributeType.INTS)):
        return value
    return _NUMBERS[kind](value)


def _strip(values: list[ir.Value | None]) -> list[ir.Value | None]:
    """Absent inputs at the end are left out."""
    while values and values[-1] is None:
        values.pop()
    return values
