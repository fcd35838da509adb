"""Operators that mean something else from one opset on, which ONNX's converter does not know of.

It keeps such a node as it is, with an attribute at another default or the same numbers read in another way.
Here it is told what to write instead, or the conversion is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.nodes import attribute, is_standard, rank_of

__all__ = ["settle", "settlements"]

_Attributes = Mapping[str, int | str]
# Attributes by name; or why the node cannot be converted.
_Settled = _Attributes | str


@dataclass(frozen=True)
class _Change:
    """From opset `since` on the operators mean something else; what to do about a node, either way."""

    operators: tuple[str, ...]
    since: int
    up: Callable[[Model, ir.Node], _Settled]
    down: Callable[[Model, ir.Node], _Settled]
    becomes: str = ""  # the operator that gets the attributes, where it is another


def settlements(model: Model, target: int) -> dict[tuple[str, str], _Attributes]:
    """The attributes that nodes need in the other opset, by operator and name of their first output."""
    source = model.opset()
    crossed = [c for c in _CHANGES if min(source, target) < c.since <= max(source, target)]
    found: dict[tuple[str, str], _Attributes] = {}
    for node in model.nodes():
        for change in crossed:
            if node.op_type not in change.operators or not is_standard(node):
                continue
            settled = (change.up if source < target else change.down)(model, node)
            if isinstance(settled, str):
                raise ModelError(
                    f"opset {source} cannot be converted to {target}: {node.op_type} {node.name!r} {settled}"
                )
            found[change.becomes or node.op_type, node.outputs[0].name or ""] = settled
    return found


def settle(graphs: Iterable[ir.Graph], settled: Mapping[tuple[str, str], _Attributes]) -> None:
    """Write the attributes into what the converter made."""
    for node in (n for graph in graphs for n in graph if n.outputs):
        for name, value in settled.get((node.op_type, node.outputs[0].name or ""), {}).items():
            made = ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrString(name, value)
            node.attributes[name] = made


def _as_it_is(_model: Model, _node: ir.Node) -> _Settled:
    return {}


def _flattened(_model: Model, _node: ir.Node) -> _Settled:
    """The converter flattens, and restores the shape by a Reshape, which from opset 14 on can restore a 0."""
    return {"allowzero": 1}


def _enlarged(model: Model, node: ir.Node) -> _Settled:
    """Before opset 11 a position was divided by the scale, without half a pixel, and rounded one way."""
    settled: dict[str, int | str] = {"coordinate_transformation_mode": "asymmetric"}
    if attribute(node, "mode", "nearest") != "nearest":
        return settled
    if node.op_type == "Upsample":
        return {**settled, "nearest_mode": "floor"}
    scales = constant(model, node.inputs[1])
    if scales is None or bool((scales > 1).any() and (scales < 1).any()):
        return "takes the nearest pixel, which opset 11 can only say of constant scales all up or all down"
    return {**settled, "nearest_mode": "ceil" if bool((scales < 1).any()) else "floor"}


def _of_the_last_axis(default: int, settled: _Attributes) -> Callable[[Model, ir.Node], _Settled]:
    """Before opset 13 all axes from `axis` on were taken as one, from then on it is that axis alone."""

    def change(_model: Model, node: ir.Node) -> _Settled:
        axis, rank = attribute(node, "axis", default), rank_of(node.inputs[0])
        if axis == -1 or (rank is not None and axis == rank - 1):
            return settled
        return f"is over axis {axis}, which means another thing before opset 13 unless it surely is the last"

    return change


def _grouped(_model: Model, _node: ir.Node) -> _Settled:
    return "has a scale for each channel from opset 21 on, and for each group before"


def _pooled(_model: Model, node: ir.Node) -> _Settled:
    if attribute(node, "ceil_mode", 0) and any(attribute(node, "pads", ())):
        return "rounds up a padded size, where ONNX Runtime counts otherwise from opset 19 on"
    return {}


_CHANGES = (
    _Change(("Upsample", "Resize"), 11, up=_enlarged, down=_as_it_is, becomes="Resize"),
    _Change(("Hardmax",), 13, up=_of_the_last_axis(1, {"axis": -1}), down=_of_the_last_axis(-1, {})),
    _Change(("Softmax", "LogSoftmax"), 13, up=_as_it_is, down=_of_the_last_axis(-1, {})),
    _Change(("Softmax", "LogSoftmax"), 14, up=_flattened, down=_as_it_is, becomes="Reshape"),
    _Change(("AveragePool",), 19, up=_pooled, down=_pooled),
    _Change(("GroupNormalization",), 21, up=_grouped, down=_grouped),
)
