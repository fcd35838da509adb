"""The forms of attention that padding is eliminated from: where their operands stand."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fuseline.engine.rewriting.tokens import Grid, Needs, Part
from fuseline.engine.shapes.dims import dims_of
from fuseline.kernels import DOMAIN

__all__ = ["Form", "form_of", "is_nothing"]


@dataclass(frozen=True)
class Form:
    """Where a form of attention has its operands, and what it is called over rows."""

    queries: int
    keys: tuple[int, ...]
    mask: int
    over_rows: str
    query_rows: int | None = None
    """Where it is over rows already, and its keys with it: the numbers of the rows of its queries."""

    def grid(self, node: ir.Node) -> Grid | None:
        """The sequences of its keys."""
        dims = dims_of(node.inputs[self.keys[0]])
        return Grid(*dims[:2]) if dims is not None and len(dims) > 3 else None

    def needs(self, node: ir.Node, grid: Grid) -> Needs:
        """What a query's token needs: its own query; the keys of the grid's tokens, if they are on it."""
        return {self.queries: Part.ROW, **self.keys_on(node, grid)}

    def keys_on(self, node: ir.Node, grid: Grid) -> Needs:
        places = [place for place in self.keys if grid.leading(node.inputs[place]) is not None]
        return dict.fromkeys(places, Part.ROW) if len(places) == len(self.keys) else {}

    def additions(self, node: ir.Node) -> list[ir.Value]:
        """Mask and bias, as far as there are any."""
        values = (node.inputs[self.mask], node.inputs[self.mask + 1])
        return [value for value in values if value is not None and not is_nothing(value)]


_FORMS = {
    "FusedAttention": Form(0, (1, 2), 3, "FusedAttentionRows"),
    "FusedAttentionPacked": Form(0, (0,), 1, "FusedAttentionPackedRows"),
    "FusedAttentionRows": Form(0, (1, 2), 3, "FusedAttentionRows", query_rows=7),
}


def form_of(node: ir.Node) -> Form | None:
    form = _FORMS.get(node.op_type) if node.domain == DOMAIN else None
    if form is not None and form.query_rows is not None:
        rows = node.inputs[form.query_rows]
        return form if rows is not None and is_nothing(rows) else None  # some of its queries: done before
    return form


def is_nothing(value: ir.Value) -> bool:
    """Whether it is the tensor without elements that stands for an absent one."""
    return dims_of(value) == (0,)
