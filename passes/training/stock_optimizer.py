"""AdamW and SGD with clipping by global norm, made of standard operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.dims import dims_of
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.optimizer import add_update

if TYPE_CHECKING:
    from fuseline.passes.training.insert_optimizer import InsertOptimizer

__all__ = ["insert"]


def insert(
    model: Model,
    rewriter: Rewriter,
    options: InsertOptimizer,
    inputs: dict[str, ir.Value],
    tensors: list[list[ir.Value]],
    accumulate: bool,
) -> None:
    """Append the update of every parameter; each new content is an output bound to the old one's memory.

    Every update needs the global norm and so all gradients, that is, every reader of a parameter has run
    before the parameter is overwritten.
    """
    writer = _Writer(model, rewriter, inputs)
    writer.clip(tensors[1], options.skip_nonfinite)
    for index, row in enumerate(zip(*tensors, strict=True)):
        rate = writer.pick(names.LEARNING_RATE, index)
        decay = writer.pick(names.WEIGHT_DECAY, index)
        if options.kind == "adamw":
            writer.adamw(*row, rate=rate, decay=decay)
        else:
            writer.sgd(*row, rate=rate, decay=decay, nesterov=options.nesterov)
        if accumulate:
            writer.clear(row[1])
    writer.finish()


class _Writer:
    """Writes the updates; scalars that all of them share are made once."""

    def __init__(self, model: Model, rewriter: Rewriter, inputs: dict[str, ir.Value]) -> None:
        self.model = model
        self.rewriter = rewriter
        self.inputs = inputs
        self.op = rewriter.builder(model.graph)
        self.applied = inputs[names.APPLY]
        self.step = self.op.Add(inputs[names.STEP], np.array([1]))
        self._shared: dict[str, ir.Value] = {}

    def shared(self, name: str, make: ir.Value | None = None) -> ir.Value:
        if make is not None:
            self._shared[name] = make
        return self._shared[name]

    def hyper(self, index: int) -> ir.Value:
        """A hyperparameter as float32, shape [1]."""
        key = f"hyper{index}"
        if key not in self._shared:
            picked = self.op.Gather(self.inputs[names.HYPER], np.array([index]))
            self.shared(key, self.op.Cast(picked, to=1))
            self.shared(f"1-{key}", self.op.Cast(self.op.Sub(np.array(1.0, np.float64), picked), to=1))
        return self.shared(key)

    def pick(self, name: str, index: int) -> ir.Value:
        """Element `index` of a list of rates, or its only element."""
        values = self.inputs[name]
        last = self.op.Sub(self.op.Size(values), np.array(1))
        position = self.op.Min(np.array(index), last)
        return self.op.Cast(self.op.Gather(values, position), to=1)

    def clip(self, gradients: list[ir.Value], skip_nonfinite: bool) -> None:
        squares = [self.op.ReduceSumSquare(g, keepdims=0) for g in gradients]
        total = squares[0]
        for square in squares[1:]:
            total = self.op.Add(total, square)
        scale, limit = self.inputs[names.GRADIENT_SCALE], self.inputs[names.MAX_NORM]
        norm = self.shared("norm", self.op.Mul(self.op.Sqrt(total), self.op.Abs(scale)))
        ratio = self.op.Min(self.op.Div(limit, self.op.Add(norm, 1e-6)), 1.0)
        clipped = self.op.Where(self.op.Greater(limit, 0.0), ratio, 1.0)
        self.shared("scale", self.op.Mul(scale, clipped))
        if skip_nonfinite:
            bad = self.op.Or(self.op.IsInf(norm), self.op.IsNaN(norm))
            self.applied = self.op.And(self.applied, self.op.Not(bad))

    def correction(self, index: int) -> ir.Value:
        """1 − beta^step, computed in float64 as torch does."""
        key = f"correction{index}"
        if key not in self._shared:
            beta = self.op.Gather(self.inputs[names.HYPER], np.array([index]))
            power = self.op.Pow(beta, self.op.Cast(self.step, to=11))
            self.shared(key, self.op.Sub(np.array(1.0, np.float64), power))
        return self.shared(key)

    def adamw(
        self, p: ir.Value, g: ir.Value, m: ir.Value, v: ir.Value, *, rate: ir.Value, decay: ir.Value
    ) -> None:
        g = self.op.Mul(g, self.shared("scale"))
        beta1, beta2 = self.hyper(0), self.hyper(1)
        new_m = self.op.Add(self.op.Mul(m, beta1), self.op.Mul(g, self.shared("1-hyper0")))
        squared = self.op.Mul(self.op.Mul(g, g), self.shared("1-hyper1"))
        new_v = self.op.Add(self.op.Mul(v, beta2), squared)
        root2 = self.op.Cast(self.op.Sqrt(self.correction(1)), to=1)
        denominator = self.op.Add(self.op.Div(self.op.Sqrt(new_v), root2), self.hyper(2))
        size = self.op.Div(rate, self.op.Cast(self.correction(0), to=1))
        kept = self.op.Mul(p, self.op.Sub(1.0, self.op.Mul(rate, decay)))
        new_p = self.op.Sub(kept, self.op.Mul(self.op.Div(new_m, denominator), size))
        for new, old in ((new_p, p), (new_m, m), (new_v, v)):
            self.update(new, old)

    def sgd(
        self,
        p: ir.Value,
        g: ir.Value,
        buffer: ir.Value | None = None,
        *,
        rate: ir.Value,
        decay: ir.Value,
        nesterov: bool,
    ) -> None:
        change = self.op.Add(self.op.Mul(g, self.shared("scale")), self.op.Mul(p, decay))
        if buffer is not None:
            momentum, kept = self.hyper(0), self.op.Sub(1.0, self.hyper(1))
            mixed = self.op.Add(self.op.Mul(buffer, momentum), self.op.Mul(change, kept))
            # torch's first step takes the gradient itself, without dampening.
            first = self.op.Equal(self.step, np.array([1]))
            new = self.op.Where(first, change, mixed)
            self.update(new, buffer)
            change = self.op.Add(change, self.op.Mul(new, momentum)) if nesterov else new
        self.update(self.op.Sub(p, self.op.Mul(change, rate)), p)

    def update(self, new: ir.Value, old: ir.Value) -> None:
        """Make `new` (or `old`, when this is no update) the output that overwrites `old`."""
        chosen = self._like(old, self.op.Where(self.applied, new, old))
        self._output(chosen, f"{old.name}.updated", old)
        add_update(self.model, f"{old.name}.updated", str(old.name))

    def clear(self, gradient: ir.Value) -> None:
        """Zero the buffer of an accumulated gradient after an update."""
        graph = self.model.graph
        name = str(gradient.name)
        kept = self._like(gradient, self.op.Where(self.inputs[names.APPLY], 0.0, gradient))
        graph.outputs[[o is gradient for o in graph.outputs].index(True)] = kept
        gradient.name = f"{name}.total"
        kept.name = name
        self.op.declare(kept, dtype=gradient.dtype, dims=dims_of(gradient))

    def finish(self) -> None:
        step = self.inputs[names.STEP]
        self.update(self.step, step)
        self._output(self.op.Identity(self.applied), names.APPLIED, self.inputs[names.APPLY])
        norm = self.op.Reshape(self.shared("norm"), np.array([1]))
        self._output(norm, names.GRADIENT_NORM, self.inputs[names.MAX_NORM])
        self.rewriter.append(self.model.graph, self.op.nodes)

    def _like(self, old: ir.Value, value: ir.Value) -> ir.Value:
        """A scalar is a vector of one after a choice by such a vector."""
        return self.op.Squeeze(value, [0]) if dims_of(old) == () else value

    def _output(self, value: ir.Value, name: str, like: ir.Value) -> None:
        value.name = name
        self.op.declare(value, dtype=like.dtype, dims=dims_of(like))
        self.model.graph.outputs.append(value)
