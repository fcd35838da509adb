"""Cutting a model down to the nodes around a fault, so that the fault remains.

The cut starts with the nodes that the faulty rewrite touches, grows until the fault shows, and then sheds
each node it can do without. Values that cross the cut become inputs, with the content they have in the whole
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.bisect import Culprit
from fuseline.engine.determinism import deterministic
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.nodes import read_by
from fuseline.engine.parameters import ParameterMap
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.verification import Verifier

__all__ = ["minimize"]

Array = npt.NDArray[Any]

_RADII = (0, 1, 2, 4, 8)
_SHEDDING_LIMIT = 64


def minimize(culprit: Culprit, verifier: Verifier) -> tuple[Model, dict[str, Array]]:
    """The smallest model found on which the pass alone fails, and its inputs.

    Gradients flow through the whole graph, so a model whose gradients are wrong is kept whole.
    """
    pipeline = Pipeline.of(culprit.step.pass_)
    whole = culprit.before
    failing = _failing_inputs(culprit.good, pipeline, verifier)
    if failing is not None:
        whole = culprit.good
    else:
        failing = _failing_inputs(whole, pipeline, verifier) or verifier.inputs[0]
    if verifier.quantity != "outputs" or culprit.rewrite is None:
        return whole, failing
    return _Cutter(whole, failing, pipeline).cut(_touched(whole, culprit)) or (whole, failing)


def _failing_inputs(model: Model, pipeline: Pipeline, verifier: Verifier) -> dict[str, Array] | None:
    """The first input set on which the pass, alone on this model, changes results."""
    return next((fed for fed in verifier.inputs if _fails(model, fed, pipeline, verifier)), None)


def _fails(model: Model, fed: Mapping[str, Array], pipeline: Pipeline, like: Verifier | None = None) -> bool:
    quantity = like.quantity if like is not None else "outputs"
    alone = Verifier(model, quantity, inputs=fed)
    try:
        reference = alone.measure(model)
    except FuselineError:
        return False
    try:
        after = pipeline.run(model).model
    except FuselineError:
        return True
    return not alone.check(reference, after)[0].ok


def _touched(model: Model, culprit: Culprit) -> set[ir.Node]:
    """The nodes of the main graph that the rewrite removed, changed or stands at."""
    assert culprit.rewrite is not None
    names = {culprit.rewrite.site, *culprit.rewrite.removed}
    for graph in culprit.diff.graphs():
        names.update(n.name for n in graph.removed)
        names.update(c.before.name for c in graph.changed if c.attributes or c.graphs)
    return {node for node in model.graph if node.name in names or names & _inner_names(node)}


def _inner_names(node: ir.Node) -> set[str]:
    """The names of all nodes in the node's subgraphs."""
    return {n.name or "" for graph in _subgraphs(node) for n in ir.traversal.RecursiveGraphIterator(graph)}


def _subgraphs(node: ir.Node) -> Iterable[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


class _Cutter:
    def __init__(self, model: Model, fed: Mapping[str, Array], pipeline: Pipeline) -> None:
        self.model, self.fed, self.pipeline = model, fed, pipeline
        self._contents: dict[str, Array] = dict(fed)

    def cut(self, core: set[ir.Node]) -> tuple[Model, dict[str, Array]] | None:
        """The smallest failing part, or None if no part fails."""
        if not core:
            return None
        grown = set(core)
        reached = 0
        for radius in _RADII:
            for _ in range(radius - reached):
                grown |= _neighbours(grown)
            reached = radius
            found = self._try(grown)
            if found is not None:
                return self._shed(grown, found)
        return None

    def _shed(
        self, nodes: set[ir.Node], found: tuple[Model, dict[str, Array]]
    ) -> tuple[Model, dict[str, Array]]:
        for node in [n for n in self.model.graph if n in nodes][:_SHEDDING_LIMIT]:
            smaller = self._try(nodes - {node}) if len(nodes) > 1 else None
            if smaller is not None:
                nodes, found = nodes - {node}, smaller
        return found

    def _try(self, nodes: set[ir.Node]) -> tuple[Model, dict[str, Array]] | None:
        nodes = nodes | _constants(nodes)
        inputs, outputs = _boundary(nodes)
        try:
            self._capture([v for v in inputs if v.name not in self._contents])
            part = self._extract(inputs, outputs)
            fed = {v.name or "": self._contents[v.name or ""] for v in inputs}
            return (part, fed) if _fails(part, fed, self.pipeline) else None
        except (FuselineError, ValueError, KeyError):
            return None

    def _capture(self, values: list[ir.Value]) -> None:
        """Run the whole model for the contents of intermediate values."""
        if not values:
            return
        watched = deterministic(self.model).clone()
        by_name = {o.name: o for n in watched.graph for o in n.outputs}
        known = {o.name for o in watched.graph.outputs}
        watched.graph.outputs.extend(by_name[v.name] for v in values if v.name not in known)
        wanted = [v.name or "" for v in values]
        self._contents |= runtime.run(runtime.session(watched, threads=1), self.fed, wanted)

    def _extract(self, inputs: list[ir.Value], outputs: list[ir.Value]) -> Model:
        graph = ir.convenience.extract(self.model.graph, inputs, outputs)
        for value in graph.inputs:
            content = self._contents[value.name or ""]
            value.type = value.type or ir.TensorType(ir.DataType.from_numpy(np.asarray(content).dtype))
            value.shape = value.shape or ir.Shape(np.asarray(content).shape)
        graph.opset_imports.update(self.model.graph.opset_imports)
        whole = self.model.ir
        part = ir.Model(graph, ir_version=whole.ir_version, functions=list(whole.functions.values()))
        kept = ParameterMap(p for p in self.model.parameters if p.value in graph.initializers)
        return Model(part, kept, self.model.facts.copy()).clone()


def _neighbours(nodes: set[ir.Node]) -> set[ir.Node]:
    """Producers and users in the main graph."""
    graph = next(iter(nodes)).graph
    near = {p for n in nodes for v in read_by(n) if (p := v.producer()) is not None}
    near |= {user for n in nodes for v in n.outputs for user, _ in v.uses()}
    return {n for n in near if n.graph is graph}


def _constants(nodes: set[ir.Node]) -> set[ir.Node]:
    """Constant nodes that are read; as inputs they would hide from patterns."""
    producers = {v.producer() for n in nodes for v in read_by(n)}
    return {p for p in producers if p is not None and p.op_type == "Constant"}


def _boundary(nodes: set[ir.Node]) -> tuple[list[ir.Value], list[ir.Value]]:
    """The values that enter the part and those that leave it, in a fixed order."""
    entering: dict[ir.Value, None] = {}
    leaving: dict[ir.Value, None] = {}
    for node in sorted(nodes, key=lambda n: n.name or ""):
        for value in read_by(node):
            if value.producer() not in nodes and not value.is_initializer():
                entering[value] = None
        for value in node.outputs:
            inside = {user for user, _ in value.uses()} <= nodes
            if value.is_graph_output() or not inside or not value.uses():
                leaving[value] = None
    return list(entering), [v for v in leaving if v.name]
