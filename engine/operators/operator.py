"""What is known about one operator, in one record; everything else asks it."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import onnx
import onnx_ir as ir

from fuseline.engine.operators import schemas, support
from fuseline.engine.operators.gradient import Gradient, NoGradient

if TYPE_CHECKING:
    from fuseline.engine.model import Model
    from fuseline.engine.operators.costs import Cost
    from fuseline.engine.operators.evaluation import Made, Operands
    from fuseline.engine.shapes.known import Known
    from fuseline.engine.shapes.site import Site, Typing
    from fuseline.engine.shapes.values import ShapeValues

__all__ = ["Bound", "Feed", "Library", "Operator", "Trait", "Weighted"]


class Trait(enum.Flag):
    """What holds for every node of an operator."""

    NONE = 0
    ELEMENTWISE = enum.auto()  # each element of the result comes from one of each (broadcast) operand
    COMMUTATIVE = enum.auto()  # the first two operands may change places
    ASSOCIATIVE = enum.auto()
    MOVES = enum.auto()  # elements of the first input come out unchanged, elsewhere or fewer of them
    VIEW = enum.auto()  # the first output is the first input under another shape: no work, no memory
    RANDOM = enum.auto()  # two equal nodes give different results
    STATEFUL = enum.auto()  # changes its inputs, or runs a graph: neither merged nor folded
    DISCRETE = enum.auto()  # no gradient flows through it at all
    STORAGE = enum.auto()  # a deliberate choice of how numbers are stored; folding would undo it
    ROUNDS = enum.auto()  # rounds activations to steps, so that a model with it answers in steps
    ORDERS = enum.auto()  # tells what comes before what: of two numbers, or of rows and columns
    TRAINING = enum.auto()  # only ONNX Runtime's training build has it


class Feed(enum.Enum):
    """What an input that is really a parameter of the operator has to hold."""

    SHAPE = "the shape of the output"
    AXES = "different axes"
    ZEROS = "zeros"
    ONES = "ones"


@dataclass(frozen=True)
class Bound:
    """An index is below the size of an axis (a number, or the attribute that names it) of input `table`."""

    table: int
    axis: int | str = 0


@dataclass(frozen=True)
class Weighted:
    """A product of the first input with a weight, the second: the name users know it by, and its kind."""

    family: str
    kind: Literal["matrix", "attention", "convolution"]


@dataclass(frozen=True)
class Library:
    """A file with kernels, which may have to be built first."""

    path: Path

    def __call__(self) -> Path | None:
        return self.path if self.path.is_file() else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator:
    """One operator. Everything but its name has a default that claims nothing."""

    name: str
    domain: str = ""
    traits: Trait = Trait.NONE
    indices: frozenset[int] = frozenset()
    """Inputs through which no gradient flows: shapes, indices, conditions."""

    shape: Callable[[Site], Sequence[Typing] | None] | None = None
    """Types and shapes of the outputs."""
    content: Callable[[ShapeValues, ir.Node], Known | None] | None = None
    """What an integer output holds, element by element, some of them symbolic."""
    evaluate: Callable[[Operands], Made] | None = None
    """The outputs in numpy; None for a case that is left to the runtime."""
    positions: Callable[[Model, ir.Node, int, int], Mapping[int, int] | None] | None = None
    """Which part of each operand one position along an axis of the result needs."""
    cost: Callable[[Site], Cost] | None = None
    """Operations and workspace; bytes read and written follow from the shapes."""

    gradient: Gradient = field(default_factory=NoGradient)
    in_place: tuple[int, ...] = ()
    """Inputs whose memory the first output takes over in ONNX Runtime, if they end there."""
    affine: tuple[int, ...] = ()
    """Inputs that scale (and then shift) each channel of the first output: one number a channel."""
    quantizable: Weighted | None = None
    """How the operator is a product whose activation and weight may be integers."""
    ratio: int | None = None
    """The input that is a dropout ratio."""
    feeds: Mapping[int, Feed | float] = field(default_factory=dict)
    bounds: Mapping[int, Bound] = field(default_factory=dict)
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Parameter → (input, first opset in which it is that input and no longer an attribute)."""

    types: Mapping[str, frozenset[ir.DataType]] = field(default_factory=dict)
    """Runtime → element types it computes in, where the measured facts do not have the operator."""
    declared: onnx.defs.OpSchema | None = None
    """The schema of an operator that ONNX does not define, or not in every opset that has a kernel."""
    library: Callable[[], Path | None] | None = None
    """Where the runtime finds the kernel; None where it was not built."""

    @property
    def qualified(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name

    def has(self, trait: Trait) -> bool:
        # By number: asked of every node by every pass, and arithmetic on enumerations is slow.
        return self.traits._value_ & trait._value_ == trait._value_

    @functools.cached_property
    def pure(self) -> bool:
        """Whether equal inputs give equal outputs, and nothing else happens."""
        return not self.traits & (Trait.RANDOM | Trait.STATEFUL)

    def schema(self, opset: int) -> onnx.defs.OpSchema | None:
        """The operator's schema in the given version of its domain; None if it does not exist there."""
        return schemas.find(self.domain, self.name, opset) or self.declared

    def form(self, opset: int) -> Mapping[str, int | None]:
        """Each parameter that moved: the input where the opset has it, None where it is an attribute."""
        return {name: index if opset >= since else None for name, (index, since) in self.moved.items()}

    def supports(self, dtype: ir.DataType | None, runtime: str = support.TRAINING, opset: int = 0) -> bool:
        """Whether a runtime has a kernel that computes in this element type (opset 0: the newest).

        It is the type of the first input that has a choice: of x in Where(condition, x, y).
        """
        found = support.element_types(runtime, self.qualified, opset)
        known = self.types.get(runtime) if found is None else found
        return known is None or dtype in known

    def attribute_default(self, name: str, opset: int) -> Any:
        """The value of an attribute that a node leaves out; None if it has none."""
        schema = self.schema(opset)
        declared = schema.attributes.get(name) if schema is not None else None
        if declared is None or not declared.default_value.type:
            return None
        return onnx.helper.get_attribute_value(declared.default_value)
