"""The pass `eliminate-padding`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.rewriting.tokens import Grid
from fuseline.engine.shapes.dims import dims_of
from fuseline.passes.training.padding.attention import form_of
from fuseline.passes.training.padding.mover import Mover
from fuseline.passes.training.padding.region import TokenRegion, find_region, leading_to

__all__ = ["EliminatePadding"]


class EliminatePadding(Pass):
    """f(x of all tokens) → f(x[rows]) for the tokens that some query sees or some reader takes

    Between the embeddings and what reads single tokens (a classifier, the labelled rows of a loss) everything
    runs on rows of real tokens, attention on the rows of each sequence. Which these are is worked out in the
    graph from what is added to the scores. Loss and gradients are the same; dropout draws for fewer rows.
    What else the graph returns of all tokens, such as their scores, stays computed for all: where both are
    asked for, both are computed.
    """

    name = "eliminate-padding"
    phase = "pre-gradient"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        tried: set[Grid] = set()
        while (site := _next(model, tried)) is not None:
            node, grid = site
            tried.add(grid)
            region = find_region(model, grid, _ends(model))
            sizes = _sizes(model, region) if isinstance(region, TokenRegion) else None
            if isinstance(region, str):
                rewriter.reject(node, region)
            elif sizes is None:
                rewriter.reject(node, f"no input tells the sizes {grid.batch} and {grid.length}")
            elif rewriter.permit(node, self.summary()):
                Mover(model, rewriter, region, sizes).move()
        return rewriter.changes


def _ends(model: Model) -> list[ir.Value]:
    """The loss; where there is none, all outputs."""
    loss = model.facts.training.loss
    return [value for value in model.graph.outputs if loss in (None, value.name)]


def _next(model: Model, tried: set[Grid]) -> tuple[ir.Node, Grid] | None:
    """Attention to keys of a grid that was not looked at yet."""
    for node in leading_to(model, _ends(model)):
        form = form_of(node)
        grid = form.grid(node) if form is not None else None
        if grid is not None and grid not in tried:
            return node, grid
    return None


def _sizes(model: Model, region: TokenRegion) -> ir.Value | None:
    """An input with the axes of the grid in front."""
    for value in model.graph.inputs:
        dims = dims_of(value)
        if dims is not None and dims[:2] == (region.grid.batch, region.grid.length):
            return value
    return None
