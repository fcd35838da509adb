"""The fuzzer draws widely and reproducibly, finds planted faults, makes them small, and survives crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fuseline.passes  # noqa: F401
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import registry
from fuseline.engine.rewriting import builder, checks, rewriter
from fuseline.engine.shapes import rules
from fuseline.tools.campaigns.fuzz import workers
from fuseline.tools.campaigns.fuzz.campaign import campaign, judge_task
from fuseline.tools.campaigns.fuzz.cases import OPSETS, Case, draw_case
from fuseline.tools.campaigns.fuzz.judge import Verdict, judge
from fuseline.tools.campaigns.fuzz.reintroduced import FAULTS, found_after, reintroduced
from fuseline.tools.campaigns.fuzz.shrink import shrink
from fuseline.tools.campaigns.fuzz.standard import runtime_errs
from fuseline.tools.campaigns.fuzz.training.judging import judge_training
from fuseline.tools.campaigns.fuzz.workers import Pool

PLUGIN = '''
import onnx_ir as ir
from fuseline.engine.pass_ import Pass

class Planted(Pass):
    """a − b → b − a, or what the option says"""
    name = "planted-fault"
    how: str = "swap"

    def run(self, model, rewriter):
        for node in list(model.graph):
            if node.op_type != "Sub" or not rewriter.permit(node, "planted"):
                continue
            a, b = node.inputs
            if self.how == "raise":
                raise ValueError("planted")
            odd = {} if self.how == "swap" else {"no": 1}
            new = ir.node("Sub", [a, b] if odd else [b, a], attributes=odd)
            rewriter.replace([node], [new], [(node.outputs[0], new.outputs[0])])
            return rewriter.changes
        return 0
'''

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N,4] x, float[?,4] z) => (float[N,4] y, float[?,4] w) {
    a = Sigmoid(x)  b = Exp(a)
    c = Sub(b, x)   d = Tanh(c)
    y = Add(d, b)   w = Neg(z)
}"""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("plugin") / "planted.py"
    path.write_text(PLUGIN)
    registry.load_plugin(path)


def _case(pipeline: str) -> Case:
    model = onnx.parser.parse_model(TEXT).SerializeToString()
    draw = np.random.default_rng(0)
    feeds = [
        {n: draw.standard_normal((size, 4)).astype(np.float32) for n in ("x", "z")} for size in (3, 1, 0)
    ]
    return Case(model, feeds, pipeline, "0/0")


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(judge_task, 1)
    yield made
    made.close()


def test_the_same_numbers_draw_the_same_case() -> None:
    for index in range(20):
        one, other = draw_case(5, index), draw_case(5, index)
        assert one.model == other.model
        assert one.pipeline == other.pipeline
        for a, b in zip(one.feeds, other.feeds, strict=True):
            assert list(a) == list(b)
            assert all(x.tobytes() == y.tobytes() for x, y in zip(a.values(), b.values(), strict=True))


def test_the_drawn_graphs_are_wide() -> None:
    operators: set[str] = set()
    types: set[int] = set()
    opsets: set[int] = set()
    functions = 0
    for index in range(440):
        model = onnx.ModelProto.FromString(draw_case(1, index).model)
        operators.update(n.op_type for n in model.graph.node if not n.domain)
        types.update(t.data_type for t in model.graph.initializer)
        types.update(i.type.tensor_type.elem_type for i in model.graph.input)
        opsets.update(o.version for o in model.opset_import if not o.domain)
        functions += len(model.functions)
    assert len(operators) >= 80, sorted(operators)
    assert {"If", "Loop", "Scan"} <= operators
    assert len(types) >= 12, types
    assert opsets == set(OPSETS)
    assert functions


@pytest.mark.parametrize(
    "how, statuses",
    [
        ("swap", {"wrong"}),
        # Refused by the engine, or else by ONNX Runtime.
        ("attribute", {"unloadable", "error"}),
        ("raise", {"error"}),
    ],
)
def test_a_planted_fault_is_found_and_made_small(pool: Pool, how: str, statuses: set[str]) -> None:
    case = _case(f"infer-shapes,planted-fault{{how={how}}},eliminate-identity,remove-unused")
    verdict = pool.ask(case)
    assert verdict.status in statuses, verdict
    small, verdict = shrink(case, verdict, pool.ask)
    model = onnx.ModelProto.FromString(small.model)
    assert [n.op_type for n in model.graph.node] == ["Sub"]
    assert small.pipeline == str(Pipeline.parse(f"planted-fault{{how={how}}}"))
    assert len(small.feeds) == 1
    assert verdict.status in statuses
    assert "planted-fault" in verdict.blame


def test_a_graph_that_stays_right_is_no_finding() -> None:
    verdict = judge(_case("inference-O3"))
    assert (verdict.status, verdict.sets) == ("ok", 3)


def test_a_crash_is_a_finding_only_behind_the_pipeline() -> None:
    def crash_in(stage: str, announce: Callable[[str], None]) -> Any:
        announce(stage)
        os.abort()

    made = Pool(crash_in, 1)
    try:
        before, after = made.ask("original"), made.ask("transformed")
    finally:
        made.close()
    assert (before.status, after.status) == ("unusable", "crash")
    assert isinstance(after, Verdict)
    assert after.found


def test_what_computes_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(stage: str, announce: Callable[[str], None]) -> Any:
        announce(stage)
        while True:
            pass

    monkeypatch.setattr(workers, "_OTHER_PATIENCE", 0.1)
    made = Pool(spin, 1)
    try:
        assert made.ask("transformed").status == "hang"
    finally:
        made.close()


def test_where_something_is_empty_the_reference_decides() -> None:
    """A product over nothing is whatever memory held: no measure, unless the other graph says otherwise."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,K] x, float[K,M] z) => (float[N,M] y) { a = Identity(x) y = MatMul(a, z) }"""
    model = onnx.parser.parse_model(text)
    feed = {"x": np.zeros((2, 0), np.float32), "z": np.zeros((0, 3), np.float32)}
    zeros, garbage = {"y": np.zeros((2, 3), np.float32)}, {"y": np.full((2, 3), 7, np.float32)}
    same = onnx.parser.parse_model(text.replace("a = Identity(x) y = MatMul(a, z)", "y = MatMul(x, z)"))
    other = onnx.parser.parse_model(text.replace("y = MatMul(a, z)", "b = MatMul(a, z) y = Exp(b)"))
    assert runtime_errs(model, same, feed, garbage, zeros)
    assert runtime_errs(model, same, feed, zeros, garbage)
    assert not runtime_errs(model, other, feed, zeros, garbage)
    assert not runtime_errs(model, same, feed, zeros, None)
    full = {"x": np.ones((2, 1), np.float32), "z": np.full((1, 3), 7, np.float32)}
    assert not runtime_errs(model, same, full, garbage, zeros)
    assert runtime_errs(model, same, full, zeros, garbage)


def test_gradients_are_judged_by_torch() -> None:
    """A factor that the graph has and the loss's gradient does not is a finding, and a shrunk one too."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float y) <float[4] w = {1, 2, 3, 4}> {
        a = Mul(x, w)  b = Tanh(a)  c = Sub(x, b)  y = ReduceSum<keepdims = 0>(c)
    }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    feeds = [{"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}]
    assert judge_training(Case(model, feeds, "training-stock", "0/0", ("w",))).status == "ok"
    wrong = Case(model, feeds, "planted-fault{how=swap},training-stock", "0/0", ("w",))
    verdict = judge_training(wrong)
    assert (verdict.status, verdict.blame) == ("wrong", "planted-fault")


@pytest.mark.native
def test_the_fusions_of_training_are_met() -> None:
    fired: set[str] = set()
    for index in range(11, 12 * 60, 12):
        case = draw_case(3, index)
        assert case.trainable
        fired.update(judge_training(case).fired)
    assert len({name for name in fired if name.startswith(("fuse-", "native-"))}) >= 5, fired


def test_an_old_fault_is_found_again() -> None:
    """`make fuzz-faults` brings back all of them."""
    judged, verdict = found_after("open sizes are 1", seed=0, at_most=200)
    assert verdict is not None, judged


def test_a_fault_is_gone_behind_its_block() -> None:
    before = rules._broadcast_dim
    for name in FAULTS:
        with reintroduced(name):
            pass
    assert rules._broadcast_dim is before
    assert builder.check_node is rewriter.check_node is checks.check_node


def test_a_quick_share_finds_nothing(tmp_path: Path) -> None:
    """`make fuzz` runs a hundred times as many."""
    assert campaign(seed=7, count=200, folder=tmp_path) == []
