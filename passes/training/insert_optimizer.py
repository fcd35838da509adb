"""The pass `insert-optimizer`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import onnx_ir as ir

from fuseline.engine.analysis import ancestors
from fuseline.engine.facts import GraphOptimizer
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.training import optimizer as names
from fuseline.engine.training.gradients import gradient_name
from fuseline.passes.training import stock_optimizer

__all__ = ["InsertOptimizer"]

_MOMENTS = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}
_KERNELS = {"adamw": "FusedAdamW", "sgd": "FusedSgd"}


class InsertOptimizer(Pass):
    """gradients → one operator that clips them by global norm and updates every parameter in place

    AdamW and SGD follow torch exactly. Rates, decay, clipping and the step are inputs (`optimizer.…`), so
    that schedules need no new graph; moments are inputs named after their parameter. With `kernels` off the
    update is made of standard operators.
    """

    name = "insert-optimizer"
    phase = "post-gradient"
    requires = (Property.DIFFERENTIATED,)
    forbids = (Property.OPTIMIZER,)
    ensures = (Property.OPTIMIZER,)
    kind: Literal["adamw", "sgd"] = "adamw"
    momentum: bool = True
    """For SGD: keep a momentum buffer."""
    nesterov: bool = False
    skip_nonfinite: bool = False
    """Leave everything as it is when the gradients' norm is infinite or not a number."""
    kernels: bool = True

    def run(self, model: Model, rewriter: Rewriter) -> int:
        if not rewriter.permit("model", self.summary()):
            return 0
        graph = model.graph
        outputs = {o.name: o for o in graph.outputs}
        values = [v for v in model.parameters.trainable_values() if gradient_name(v) in outputs]
        accumulate = model.has(Property.ACCUMULATING)
        made = GraphOptimizer(self.kind, tuple(values), self._moments(values), accumulate)
        gradients = [outputs[gradient_name(v)] for v in values]
        inputs = _declare(graph)
        tensors = [[graph.initializers[v] for v in values], gradients, *_states(graph, made)]
        if not accumulate:
            # Nobody outside needs them now; what is no output need not outlive the step.
            for gradient in gradients:
                graph.outputs.remove(gradient)
        inputs[names.APPLY] = _after_all_outputs(graph, rewriter, inputs[names.APPLY], gradients)
        if self.kernels:
            self._insert_kernel(graph, rewriter, inputs, tensors, accumulate)
        else:
            stock_optimizer.insert(model, rewriter, self, inputs, tensors, accumulate)
        model.facts.training = replace(model.facts.training, optimizer=made)
        rewriter.count("parameters", len(values))
        return rewriter.changes

    def _moments(self, values: list[str]) -> tuple[tuple[str, ...], ...]:
        kinds = _MOMENTS[self.kind] if self.kind == "adamw" or self.momentum else ()
        return tuple(tuple(f"{v}.{kind}" for v in values) for kind in kinds)

    def _insert_kernel(
        self,
        graph: ir.Graph,
        rewriter: Rewriter,
        inputs: dict[str, ir.Value],
        tensors: list[list[ir.Value]],
        accumulate: bool,
    ) -> None:
        attributes = {"skip_nonfinite": int(self.skip_nonfinite), "zero_gradients": int(accumulate)}
        if self.kind == "sgd":
            attributes["nesterov"] = int(self.nesterov)
        op = rewriter.builder(graph)
        operands = (*inputs.values(), *(t for group in tensors for t in group))
        applied, norm = op.node(_KERNELS[self.kind], *operands, **attributes, _domain="fuseline", _outputs=2)
        applied.name, norm.name = names.APPLIED, names.GRADIENT_NORM
        rewriter.append(graph, op.nodes)
        graph.outputs.extend([applied, norm])


def _declare(graph: ir.Graph) -> dict[str, ir.Value]:
    """The optimizer's own inputs, in the order in which the operators take them."""
    kinds: dict[str, tuple[ir.DataType, int | str]] = {
        names.LEARNING_RATE: (ir.DataType.DOUBLE, "optimizer_rates"),
        names.WEIGHT_DECAY: (ir.DataType.DOUBLE, "optimizer_decays"),
        names.HYPER: (ir.DataType.DOUBLE, "optimizer_hyper"),
        names.STEP: (ir.DataType.INT64, 1),
        names.MAX_NORM: (ir.DataType.FLOAT, 1),
        names.GRADIENT_SCALE: (ir.DataType.FLOAT, 1),
        names.APPLY: (ir.DataType.BOOL, 1),
    }
    made = {
        name: ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([size]))
        for name, (dtype, size) in kinds.items()
    }
    graph.inputs.extend(made.values())
    return made


def _states(graph: ir.Graph, optimizer: GraphOptimizer) -> list[list[ir.Value]]:
    groups = []
    for group in optimizer.moments:
        made = [
            ir.Value(name=name, type=graph.initializers[v].type, shape=graph.initializers[v].shape)
            for name, v in zip(group, optimizer.values, strict=True)
        ]
        graph.inputs.extend(made)
        groups.append(made)
    return groups


def _after_all_outputs(
    graph: ir.Graph, rewriter: Rewriter, apply: ir.Value, gradients: list[ir.Value]
) -> ir.Value:
    """`apply`, made to depend on outputs that the gradients do not need.

    The optimizer overwrites parameters that such an output may still have to read.
    """
    needed = ancestors(gradients)
    for output in [o for o in graph.outputs if o not in needed and o not in gradients]:
        op = rewriter.builder(graph)
        apply = op.And(apply, op.GreaterOrEqual(op.Size(output), 0))
        rewriter.append(graph, op.nodes)
        op.nodes[-1].metadata_props[names.WAITS_FOR] = str(output.name)
    return apply
