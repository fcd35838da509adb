"""The collector of golden files: what a pass makes of a model, as ONNX text.

    // RUN: fuse-gelu,remove-unused          the pipeline, once at the top of the file
    // CASE: erf_gelu                        a test of its own
    // TRAINABLE: weight, bias               (optional) initializers that are trainable parameters
    // TYPES:                                (optional) intermediate types are part of the expectation
    // NO-RUN: why                           (optional) do not run the model
    // ONCE: why                             (optional) do not run the pipeline on its own result
    // TOLERANCE: 0.05                       (optional) how far results may be off, as a part of the largest
    agraph (float[N,4] x) => (float[N,4] y) { … }
    // EXPECT:                               the graph afterwards, or
    // EXPECT-UNCHANGED: part of the reason  the pass must leave it alone and say why, or a near miss must, or
    // EXPECT-UNCHANGED: (the reason)        it is no candidate at all, so nothing is said about it

A model without a `<ir_version…>` header gets the one below. Every case is also run before and after on
ONNX Runtime with its own optimisations off, and the pipeline is run again to see that nothing more changes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import pytest

from fuseline import kernels
from fuseline.engine import runtime
from fuseline.engine.canonical import canonical_text, without_details
from fuseline.engine.inputs import generate
from fuseline.engine.manager import Result
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.patterns import Fusion
from fuseline.engine.patterns.explain import explain
from fuseline.engine.pipeline import Pipeline

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
DIRECTIVE = re.compile(r"^// ([A-Z][A-Z-]*):[ ]?(.*)$")
RUNTIME_DOMAINS = ("com.microsoft",)
# Rewrites may reorder float arithmetic, never more.
TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (2e-5, 2e-5), "float64": (1e-10, 1e-10)}


@dataclass
class Case:
    name: str
    model: str
    directives: dict[str, str] = field(default_factory=dict)
    expected: str = ""


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".onnxtxt":
        collector: pytest.Collector = GoldenFile.from_parent(parent, path=file_path)
        return collector
    return None


class GoldenFile(pytest.File):
    """All cases of one file."""

    updates: dict[str, str]

    def collect(self) -> Iterator[pytest.Item]:
        pipeline, cases = parse(self.path.read_text())
        if not cases:
            raise ValueError(f"{self.path.name} has no '// CASE:'")
        self.updates = {}
        for case in cases:
            yield GoldenItem.from_parent(self, name=case.name, pipeline=pipeline, case=case)

    def teardown(self) -> None:
        if self.updates:
            self.path.write_text(_rewrite(self.path.read_text(), self.updates))


class GoldenItem(pytest.Item):
    """One case."""

    def __init__(self, *, pipeline: str, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.case = pipeline, case

    def runtest(self) -> None:
        case = self.case
        before = build(case)
        result = Pipeline.parse(self.pipeline).run(before)
        if "EXPECT-UNCHANGED" in case.directives:
            check_unchanged(self.pipeline, before, result, case.directives["EXPECT-UNCHANGED"])
            return
        assert result.changes, "nothing changed" + _reasons(result)
        if "ONCE" not in case.directives:
            check_settled(self.pipeline, result.model)
        if "NO-RUN" not in case.directives:
            check_numbers(before, result.model, float(case.directives.get("TOLERANCE", 0)))
        self.compare(result.model.to_proto())

    def compare(self, actual: onnx.ModelProto) -> None:
        types = "TYPES" in self.case.directives
        text = printed(actual, types=types)
        if self.config.getoption("--update-golden"):
            assert isinstance(self.parent, GoldenFile)
            self.parent.updates[self.case.name] = text
            return
        made, wanted = (comparable(p, types=types) for p in (actual, parse_model(self.case.expected)))
        difference = "\n".join(
            difflib.unified_diff(wanted.splitlines(), made.splitlines(), "expected", "made")
        )
        assert made == wanted, f"made:\n{text}\nwhich differs in:\n{difference}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if excinfo.errisinstance(AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.stem}::{self.name}"


def parse(text: str) -> tuple[str, list[Case]]:
    """The pipeline and the cases of a golden file."""
    pipeline, cases, target = "", [], "model"
    for number, line in enumerate(text.splitlines(), 1):
        directive = DIRECTIVE.match(line)
        if directive is None:
            if cases and not line.startswith("//"):
                setattr(cases[-1], target, getattr(cases[-1], target) + line + "\n")
            elif line.strip() and not line.startswith("//"):
                raise ValueError(f"line {number}: text before the first '// CASE:'")
            continue
        key, value = directive[1], directive[2].strip()
        if key == "RUN":
            pipeline = value
        elif key == "CASE":
            cases.append(Case(value, ""))
            target = "model"
        elif cases and key in (
            "EXPECT",
            "EXPECT-UNCHANGED",
            "TRAINABLE",
            "TYPES",
            "NO-RUN",
            "ONCE",
            "TOLERANCE",
        ):
            cases[-1].directives[key] = value
            target = "expected" if key.startswith("EXPECT") else target
        else:
            raise ValueError(f"line {number}: {line!r} is not a directive, or out of place")
    return pipeline, cases


def parse_model(text: str) -> onnx.ModelProto:
    text = text.strip()
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)


def build(case: Case) -> Model:
    model = Model.from_proto(parse_model(case.model))
    for name in filter(None, re.split(r"[,\s]+", case.directives.get("TRAINABLE", ""))):
        tensor = model.graph.initializers[name].const_value
        assert tensor is not None
        model.parameters.add(Parameter(name, name, tuple(tensor.shape.numpy()), str(tensor.numpy().dtype)))
    return model


def comparable(proto: onnx.ModelProto, *, types: bool) -> str:
    """What a graph computes, whatever its nodes and inner values are called."""
    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    del plain.metadata_props[:]  # the parameter map, which an expectation does not have
    # An expectation is written without a header: the opsets are not part of it.
    text = canonical_text(Model.from_proto(plain)).partition("\n")[2]
    return text if types else without_details(text)


def printed(proto: onnx.ModelProto, *, types: bool) -> str:
    """The ONNX text of a model as it stands in a golden file: no node names, documentation or metadata."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.metadata_props[:]
    for graph in _graphs(copy.graph):
        _strip_graph(graph, types=types)
    for function in copy.functions:
        function.ClearField("value_info")
        del function.metadata_props[:]
        _strip_nodes(function.node, types=types)
    text = onnx.printer.to_text(copy)
    text = re.sub(r"^<.*?>\n", "", text, count=1, flags=re.S)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _strip_graph(graph: onnx.GraphProto, *, types: bool) -> None:
    known = {tensor.name for tensor in graph.initializer}
    infos = [i for i in graph.value_info if types and i.name not in known]
    infos.sort(key=lambda i: i.name)
    graph.ClearField("value_info")
    for info in infos:
        plain = graph.value_info.add()
        plain.name = info.name
        plain.type.CopyFrom(info.type)
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
    initializers = sorted(graph.initializer, key=lambda t: t.name)
    graph.ClearField("initializer")
    graph.initializer.extend(initializers)
    del graph.metadata_props[:]
    _strip_nodes(graph.node, types=types)


def _strip_nodes(nodes: Any, *, types: bool) -> None:
    for node in nodes:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        attributes = sorted(node.attribute, key=lambda a: a.name)
        node.ClearField("attribute")
        node.attribute.extend(attributes)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.ClearField("name")
            if attribute.HasField("g"):
                _strip_graph(attribute.g, types=types)


def check_unchanged(pipeline: str, before: Model, result: Result, reason: str) -> None:
    rewrites = [f"{r.name}: {w.site} {w.note}" for r in result.records for w in r.rewrites]
    assert not result.changes, f"should be unchanged, but: {rewrites}"
    assert reason, "'EXPECT-UNCHANGED:' must give the reason" + _reasons(result)
    given = [r.reason for record in result.records for r in record.rejections]
    given += _near_misses(pipeline, before)
    if reason.startswith("("):
        assert not given, f"a reason was reported, write part of it: {given}"
    else:
        assert any(reason in g for g in given), f"nothing said {reason!r}; reasons given: {given or 'none'}"


def _near_misses(pipeline: str, before: Model) -> list[str]:
    """Where a fusion nearly matches the untouched model."""
    fusions = [p for p in Pipeline.parse(pipeline).passes() if isinstance(p, Fusion)]
    misses = [miss for fusion in fusions for miss in explain(fusion, before).near_misses]
    return [f"found {miss.found}, expected {miss.expected}" for miss in misses]


def _reasons(result: Result) -> str:
    given = [f"{r.site}: {r.reason}" for record in result.records for r in record.rejections]
    return "; reasons given: " + ("; ".join(given) if given else "none")


def check_settled(pipeline: str, model: Model) -> None:
    again = Pipeline.parse(pipeline).run(model)
    more = [f"{r.name}: {w.site} {w.note}" for r in again.records for w in r.rewrites]
    assert not again.changes, f"a second run changes more: {more}"


def check_numbers(before: Model, after: Model, part: float) -> None:
    if not kernels.available() and any(node.domain == kernels.DOMAIN for node in after.nodes()):
        return  # the text has been compared; there is nothing to run the operators with
    inputs = generate(before, seed=0)
    was = runtime.run(runtime.session(before, threads=1), inputs)
    now = runtime.run(runtime.session(after, threads=1), inputs)
    assert list(was) == list(now), "the outputs have other names or another order"
    for name, expected in was.items():
        actual = now[name]
        assert type(actual) is type(expected), name
        if not isinstance(expected, np.ndarray):
            continue
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), name
        rtol, atol = TOLERANCE.get(str(expected.dtype), (0.0, 0.0))
        if part and expected.dtype.kind == "f":
            atol = part * float(np.abs(expected).max())
        if expected.dtype == object or not atol:
            np.testing.assert_array_equal(actual, expected, err_msg=name)
        else:
            np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=name)


def _rewrite(text: str, updates: dict[str, str]) -> str:
    """The file with the expectation of each updated case replaced."""
    blocks = re.split(r"(?m)^(?=// CASE:)", text)
    for index, block in enumerate(blocks):
        name = block.split("\n", 1)[0].removeprefix("// CASE:").strip()
        if block.startswith("// CASE:") and name in updates:
            head = re.split(r"(?m)^// EXPECT:.*$", block)[0].rstrip("\n")
            blocks[index] = f"{head}\n// EXPECT:\n{updates[name]}\n\n"
    return "".join(blocks).rstrip("\n") + "\n"
