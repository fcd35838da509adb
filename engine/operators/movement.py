"""Operators that move elements or say where they are: shapes, views, slices, joins, indices."""

from __future__ import annotations

from typing import Any

from fuseline.engine.operators import costs, positions
from fuseline.engine.operators import evaluation as by_numpy
from fuseline.engine.operators.gradient import BUILT_IN, GradientNode, NoGradient, Prepared, defined
from fuseline.engine.operators.operator import Bound, Feed, Operator, Trait
from fuseline.engine.shapes import rules
from fuseline.engine.shapes import value_rules as content

__all__ = ["MOVEMENT"]

_FIRST = frozenset([1])


def _move(name: str, **more: Any) -> Operator:
    fields: dict[str, Any] = {"traits": Trait.MOVES, "gradient": BUILT_IN, "cost": costs.nothing}
    return Operator(name=name, **(fields | more))


def _view(name: str, **more: Any) -> Operator:
    return _move(name, traits=Trait.MOVES | Trait.VIEW, in_place=(0,), **more)


def _made(name: str, **more: Any) -> Operator:
    """Makes numbers out of shapes, positions or other numbers; no gradient flows."""
    return Operator(name=name, traits=Trait.DISCRETE, cost=costs.nothing, **more)


_AXES = {"axes": (1, 13)}
_VIEWS = (
    _view("Reshape", indices=_FIRST, shape=rules.reshape, content=content.reshape, evaluate=by_numpy.reshape,
          positions=positions.reshape, feeds={1: Feed.SHAPE}, moved={"shape": (1, 5)}),
    _view("Flatten", shape=rules.flatten, evaluate=by_numpy.flatten),
    _view("Squeeze", indices=_FIRST, shape=rules.squeeze, content=content.squeeze, evaluate=by_numpy.squeeze,
          feeds={1: Feed.AXES}, moved=_AXES),
    _view("Unsqueeze", indices=_FIRST, shape=rules.unsqueeze, content=content.unsqueeze,
          evaluate=by_numpy.unsqueeze, feeds={1: Feed.AXES}, moved=_AXES),
)  # fmt: skip

# The built-in one decides from declared sizes, and takes an open size for another one than 1.
_SUM_OF_COPIES = defined(
    GradientNode("Shape", ("I(0)",), ("sizes",)),
    GradientNode("Shape", ("GO(0)",), ("whole",)),
    GradientNode("Equal", ("whole", "whole"), ("all",)),
    GradientNode("Cast", ("all",), ("ones",), attributes={"to": 7}),
    GradientNode("Concat", ("ones", "sizes"), ("long",), attributes={"axis": 0}),
    GradientNode("Shape", ("whole",), ("rank",)),
    GradientNode("Neg", ("rank",), ("start",)),
    GradientNode("Shape", ("long",), ("end",)),
    GradientNode("Slice", ("long", "start", "end"), ("padded",)),
    GradientNode("Equal", ("padded", "ones"), ("single",)),
    GradientNode("NonZero", ("single",), ("found",)),
    GradientNode("Shape", ("rank",), ("one",)),
    GradientNode("Neg", ("one",), ("flat",)),
    GradientNode("Reshape", ("found", "flat"), ("axes",)),
    GradientNode("ReduceSum", ("GO(0)", "axes"), ("sum",),
                 attributes={"keepdims": 1, "noop_with_empty_axes": 1}),
    GradientNode("Reshape", ("sum", "sizes")),
    stopped=_FIRST,
)  # fmt: skip

_MOVES = (
    _move("Transpose", shape=rules.transpose, evaluate=by_numpy.transpose, positions=positions.transpose),
    _move("Expand", indices=_FIRST, shape=rules.expand, evaluate=by_numpy.expand, feeds={1: Feed.SHAPE},
          gradient=_SUM_OF_COPIES),
    _move("Tile", indices=_FIRST, feeds={1: Feed.ONES}),
    _move("Slice", indices=frozenset([1, 2, 3, 4]), shape=rules.slice_, content=content.slice_,
          evaluate=by_numpy.slice_, positions=positions.slice_, feeds={1: Feed.ZEROS, 4: Feed.ONES},
          moved={"starts": (1, 10), "ends": (2, 10), "axes": (3, 10)}),
    _move("Split", shape=rules.split, evaluate=by_numpy.split, indices=_FIRST, moved={"split": (1, 13)}),
    _move("Concat", traits=Trait.NONE, shape=rules.concat, content=content.concat, evaluate=by_numpy.concat),
    _move("Pad", traits=Trait.NONE, indices=frozenset([1, 2, 3]),
          feeds={1: Feed.ZEROS, 3: Feed.AXES}, moved={"pads": (1, 11), "value": (2, 11)}),
    _move("Trilu", traits=Trait.ORDERS, indices=_FIRST, shape=rules.same, feeds={1: Feed.ZEROS},
          in_place=(0,)),
    _move("DepthToSpace", traits=Trait.NONE, gradient=Prepared()),
    _move("SpaceToDepth", traits=Trait.NONE, gradient=Prepared()),
    _move("Resize", traits=Trait.NONE, indices=frozenset([1, 2, 3]), feeds={3: Feed.SHAPE},
          gradient=NoGradient("ONNX Runtime has no kernel for its gradient on the CPU; "
                              "freeze what lies before it")),
    _move("Upsample", traits=Trait.NONE, indices=_FIRST, feeds={1: Feed.ONES}, gradient=NoGradient(),
          moved={"scales": (1, 9)}),
    _move("GridSample", traits=Trait.NONE,
          gradient=NoGradient("there is no gradient for it; freeze what lies before it")),
    _move("AffineGrid", traits=Trait.NONE, feeds={1: Feed.SHAPE}, gradient=NoGradient()),
    _move("CenterCropPad", traits=Trait.NONE, feeds={1: Feed.SHAPE}, gradient=NoGradient()),
    _move("Col2Im", traits=Trait.NONE, feeds={1: Feed.ONES, 2: Feed.ONES}, gradient=NoGradient()),
    _move("SplitToSequence", traits=Trait.NONE, gradient=Prepared("resolve-split-sequence")),
)  # fmt: skip

_INDEXED = (
    _move("Gather", indices=_FIRST, shape=rules.gather, content=content.gather, evaluate=by_numpy.gather,
          bounds={1: Bound(0, "axis")}),
    _move("GatherElements", indices=_FIRST, bounds={1: Bound(0, "axis")}),
    _move("GatherND", indices=_FIRST, bounds={1: Bound(0)}),
    _move("ScatterElements", traits=Trait.NONE, indices=_FIRST, shape=rules.same,
          bounds={1: Bound(0, "axis")}),
    _move("ScatterND", traits=Trait.NONE, indices=_FIRST, shape=rules.same, bounds={1: Bound(0)}),
    _move("Scatter", traits=Trait.NONE, indices=_FIRST, gradient=NoGradient(), bounds={1: Bound(0, "axis")}),
    _move("TopK", traits=Trait.NONE, indices=_FIRST, feeds={1: Feed.ONES}, moved={"k": (1, 10)}),
    _move("CumSum", traits=Trait.NONE, indices=_FIRST, shape=rules.same, feeds={1: Feed.AXES},
          cost=costs.per_element(1),
          gradient=defined(GradientNode("CumSum", ("GO(0)", "I(1)"), attributes={"reverse": 1}),
                           stopped=_FIRST)),
)  # fmt: skip

_MADE = (
    _made("Shape", shape=rules.shape, content=content.shape, evaluate=by_numpy.shape),
    _made("Size", shape=rules.size, content=content.size, evaluate=by_numpy.size),
    _made("NonZero"),
    _made("ArgMax"),
    _made("ArgMin"),
    _made("EyeLike"),
    _made("Range", evaluate=by_numpy.range_, feeds={0: 0, 1: 5, 2: 1}),
    _made("OneHot", feeds={1: 8}),
    _made("ConstantOfShape", shape=rules.constant_of_shape, content=content.constant_of_shape,
          evaluate=by_numpy.constant_of_shape, feeds={0: Feed.SHAPE}),
    _made("NonMaxSuppression", feeds={2: 3, 3: 0.5, 4: 0.1}),
)  # fmt: skip

MOVEMENT = (*_VIEWS, *_MOVES, *_INDEXED, *_MADE)
