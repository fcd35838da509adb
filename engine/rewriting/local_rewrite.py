"""Passes that replace single nodes by a few others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import is_standard
from fuseline.engine.pass_ import Pass, Phase
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.rewriter import Rewriter

__all__ = ["LocalRewrite"]


class LocalRewrite(Pass):
    """Base of fix-ups that look at one node at a time, in all graphs."""

    phase: ClassVar[Phase] = "pre-gradient"
    operators: ClassVar[tuple[str, ...]] = ()
    """The operators it looks at; one outside the standard domain is written `domain::Op`."""

    def candidates(self, model: Model, rewriter: Rewriter) -> list[ir.Node]:
        """The nodes to look at, as they are before the first rewrite."""
        return list(model.nodes())

    def applies(self, model: Model, node: ir.Node) -> bool | str:
        """Whether the node needs the fix; a text says why it nearly does."""
        return True

    def build(self, op: Builder, node: ir.Node) -> ir.Value | Sequence[ir.Value | None]:
        """Make the replacement; its values stand for the node's outputs in order (None: unused)."""
        raise NotImplementedError

    def run(self, model: Model, rewriter: Rewriter) -> int:
        wanted = set(self.operators)
        for node in self.candidates(model, rewriter):
            if _qualified(node) not in wanted:
                continue
            verdict = self.applies(model, node)
            if isinstance(verdict, str):
                rewriter.reject(node, verdict)
            elif verdict and rewriter.permit(node, self.summary()):
                self._exchange(rewriter, node)
        return rewriter.changes

    def _exchange(self, rewriter: Rewriter, node: ir.Node) -> None:
        with rewriter.building(node) as op:
            made = self.build(op, node)
            values = [made] if isinstance(made, ir.Value) else list(made)
            pairs = [(old, new) for old, new in zip(node.outputs, values, strict=False) if new is not None]
            rewriter.replace([node], op.nodes, pairs)


def _qualified(node: ir.Node) -> str:
    return node.op_type if is_standard(node) else f"{node.domain}::{node.op_type}"
