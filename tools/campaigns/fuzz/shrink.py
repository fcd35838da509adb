"""Making a failing case small: fewer inputs to run, fewer passes, fewer nodes, the same kind of failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuseline.engine.pipeline import Pipeline
from fuseline.tools.campaigns.fuzz.cases import Case, Feeds
from fuseline.tools.campaigns.fuzz.judge import Verdict

__all__ = ["shrink"]

_SECONDS = 25.0

Ask = Callable[[Case], Verdict]


def shrink(case: Case, verdict: Verdict, ask: Ask) -> tuple[Case, Verdict]:
    """The smallest case found in the time that fails in the same way."""
    best = _Best(case, verdict, ask)
    for candidate in _fewer_feeds(case):
        if best.take(candidate):
            break
    best.passes()
    best.settle(_smaller_graphs)
    best.passes()
    return best.case, best.verdict


class _Best:
    """The smallest so far."""

    def __init__(self, case: Case, verdict: Verdict, ask: Ask) -> None:
        self.case, self.verdict, self._ask = case, verdict, ask
        self._end = time.monotonic() + _SECONDS

    def take(self, candidate: Case) -> bool:
        if time.monotonic() > self._end:
            return False
        verdict = self._ask(candidate)
        if verdict.status != self.verdict.status or (
            verdict.status == "error" and verdict.signature != self.verdict.signature
        ):
            return False
        self.case, self.verdict = candidate, verdict
        return True

    def settle(self, steps: Callable[[Case], Iterator[Case]]) -> None:
        """Take steps until none of them keeps the failure."""
        progress = True
        while progress and time.monotonic() < self._end:
            progress = any(self.take(candidate) for candidate in steps(self.case))

    def passes(self) -> None:
        """Leave out passes, half of them at a time and then fewer."""
        names = _flat(self.case.pipeline)
        size = max(len(names) // 2, 1)
        while True:
            position = 0
            while position < len(names) and len(names) > 1:
                shorter = names[:position] + names[position + size :]
                if shorter and self.take(replace(self.case, pipeline=",".join(shorter))):
                    names = shorter
                else:
                    position += size
            if size == 1:
                return
            size = max(size // 2, 1)


def _flat(text: str) -> list[str]:
    """The passes in order, those of a repeated group thrice."""
    pipeline = Pipeline.resolve(text)
    names: list[str] = []
    for stage in pipeline.stages:
        inner = getattr(stage, "stages", None)
        names += [str(stage)] if inner is None else [str(p) for p in inner] * 3
    return names


def _fewer_feeds(case: Case) -> Iterator[Case]:
    for feed in case.feeds:
        yield replace(case, feeds=[feed])


def _smaller_graphs(case: Case) -> Iterator[Case]:
    model = onnx.ModelProto.FromString(case.model)
    yield from _single_outputs(case, model)
    yield from _earlier_outputs(case, model)
    yield from _cuts(case, model)
    yield from _bypasses(case, model)
    yield from _without_unused(case, model)


def _with(case: Case, model: onnx.ModelProto, feeds: list[Feeds] | None = None) -> Case:
    _prune(model)
    names = {i.name for i in model.graph.input}
    kept = [{k: v for k, v in feed.items() if k in names} for feed in (feeds or case.feeds)]
    return replace(case, model=model.SerializeToString(), feeds=kept)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _prune(model: onnx.ModelProto) -> None:
    """Drop what no output needs."""
    needed = {o.name for o in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed.update(_reads(node))
    kept.reverse()
    _fill(model.graph.node, kept)
    for field in (model.graph.input, model.graph.initializer):
        _fill(field, [v for v in field if v.name in needed])
    called = {n.op_type for n in model.graph.node}
    nested = b"".join(n.SerializeToString() for n in model.graph.node)
    _fill(model.functions, [f for f in model.functions if f.name in called or f.name.encode() in nested])


def _fill(field: Any, content: list[Any]) -> None:
    copies = [type(c).FromString(c.SerializeToString()) for c in content]
    del field[:]
    field.extend(copies)


def _reads(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            names.update(o.name for o in inner.output)
            for child in inner.node:
                names |= _reads(child)
    return names


def _single_outputs(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    if len(model.graph.output) < 2:
        return
    for output in model.graph.output:
        copy = _copy(model)
        _fill(copy.graph.output, [output])
        yield _with(case, copy)


def _types(case: Case, model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference refuses some graphs that run
        return {}
    return {v.name: v for v in inferred.graph.value_info if v.type.HasField("tensor_type")}


def _earlier_outputs(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """A value in the middle as the only output."""
    known = _types(case, model)
    current = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name in known and name not in current:
                copy = _copy(model)
                kind = known[name].type.tensor_type.elem_type
                _fill(copy.graph.output, [helper.make_tensor_value_info(name, kind, None)])
                yield _with(case, copy)


def _cuts(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """A node less, with its result as an input that is fed what it was."""
    from fuseline.tools.campaigns.fuzz.probe import open_session

    known = _types(case, model)
    nodes = [
        n for n in model.graph.node if n.op_type != "Constant" and all(o in known for o in n.output if o)
    ]
    if not nodes:
        return
    watched = _copy(model)
    names = [o for n in nodes for o in n.output if o]
    have = {o.name for o in watched.graph.output}
    for name in names:
        if name not in have:
            kind = known[name].type.tensor_type.elem_type
            watched.graph.output.append(helper.make_tensor_value_info(name, kind, None))
    try:
        session = open_session(watched.SerializeToString())
        results = [dict(zip(names, session.run(names, feed), strict=True)) for feed in case.feeds]
    except Exception:  # ONNX Runtime raises a dozen unrelated types
        return
    for node in reversed(nodes):
        copy = _copy(model)
        _fill(copy.graph.node, [n for n in model.graph.node if list(n.output) != list(node.output)])
        outputs = {o.name for o in model.graph.output}
        for name in node.output:
            if name and name not in outputs:
                dims = _declared(known[name], [np.shape(r[name]) for r in results])
                kind = known[name].type.tensor_type.elem_type
                copy.graph.input.append(helper.make_tensor_value_info(name, kind, dims))
        feeds = [
            {**feed, **{o: r[o] for o in node.output if o}}
            for feed, r in zip(case.feeds, results, strict=True)
        ]
        if not outputs & set(node.output):
            yield _with(case, copy, feeds)


def _declared(known: onnx.ValueInfoProto, shapes: list[tuple[int, ...]]) -> list[int | str | None] | None:
    """Dimensions as inferred, and where nothing is, anonymous."""
    if not known.type.tensor_type.HasField("shape"):
        return [None] * len(shapes[0])
    dims: list[int | str | None] = []
    for dim in known.type.tensor_type.shape.dim:
        dims.append(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None)
    return dims


def _bypasses(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """A node less, with what it read in place of what it made."""
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        if len(node.output) != 1 or node.output[0] in outputs:
            continue
        for source in dict.fromkeys(n for n in node.input if n):
            copy = _copy(model)
            _fill(copy.graph.node, [n for n in model.graph.node if list(n.output) != list(node.output)])
            for other in copy.graph.node:
                for i, name in enumerate(other.input):
                    if name == node.output[0]:
                        other.input[i] = source
            yield _with(case, copy)


def _without_unused(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    size = len(model.SerializeToString())
    copy = _copy(model)
    _prune(copy)
    if len(copy.SerializeToString()) < size:
        yield _with(case, copy)
    for tensor in model.graph.initializer:
        content = numpy_helper.to_array(tensor)
        if content.dtype.kind == "f" and content.size > 1 and len(np.unique(content)) > 1:
            copy = _copy(model)
            plain = numpy_helper.from_array(np.ones_like(content), tensor.name)
            _fill(
                copy.graph.initializer,
                [plain if t.name == tensor.name else t for t in model.graph.initializer],
            )
            yield _with(case, copy)
