"""Patterns by example: a small torch function is exported, and its graph becomes the pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from fuseline.engine.errors import PassError
from fuseline.engine.patterns.terms import NodeTerm, Output, Term

if TYPE_CHECKING:
    from fuseline.engine.patterns.pattern import Op

__all__ = ["pattern_of"]


def pattern_of(
    op: Op, function: Callable[..., Any], terms: Sequence[Any], shapes: Sequence[Sequence[int]]
) -> Any:
    """The output terms of `function` applied to `terms`; `shapes` are example shapes of its arguments."""
    if len(terms) != len(shapes):
        raise PassError(
            f"an example needs one shape per argument: {len(terms)} arguments, {len(shapes)} shapes"
        )
    graph = _export(function, shapes)
    known: dict[ir.Value, Term | None] = {
        value: op.term(term) for value, term in zip(graph.inputs, terms, strict=True)
    }
    for node in graph:
        inputs = tuple(None if v is None else _term(op, v, known) for v in node.inputs)
        attributes = {k: a.value for k, a in node.attributes.items() if k not in _INCIDENTAL}
        made = NodeTerm((node.op_type,), inputs, node.domain, attributes)
        known.update({v: Output(made, i) for i, v in enumerate(node.outputs)})
    outputs = tuple(known[v] for v in graph.outputs)
    return outputs[0] if len(outputs) == 1 else outputs


_INCIDENTAL = frozenset(["allowzero", "stash_type", "keepdims", "noop_with_empty_axes"])


def _term(op: Op, value: ir.Value, known: dict[ir.Value, Term | None]) -> Term | None:
    if value not in known:
        if value.const_value is None:
            raise PassError(
                f"the example's graph reads {value.name!r}, which is neither argument nor constant"
            )
        known[value] = op.constant(value.const_value.numpy())
    return known[value]


def _export(function: Callable[..., Any], shapes: Sequence[Sequence[int]]) -> ir.Graph:
    try:
        import torch
    except ImportError as error:
        raise PassError("a pattern by example needs torch", hint="pip install fuseline[torch]") from error

    class Example(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    # Sizes are dynamic, so that no example size finds its way into the pattern.
    dynamic = tuple(dict.fromkeys(range(len(shape)), torch.export.Dim.DYNAMIC) for shape in shapes)
    program = torch.onnx.export(
        Example().eval(),
        tuple(torch.randn(*shape) for shape in shapes),
        dynamo=True,
        verbose=False,
        opset_version=18,
        dynamic_shapes=(dynamic,),
    )
    assert program is not None
    return program.model.graph
