"""Pipelines: Python, text and YAML say the same thing, and mistakes are explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuseline.engine.errors import FuselineError, GateFailed, PassError, PipelineError
from fuseline.engine.manager import PassRecord
from fuseline.engine.model import Model
from fuseline.engine.observer import Observer
from fuseline.engine.observers.verify import Verify
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline, Repeat
from fuseline.engine.properties import Property
from fuseline.engine.registry import Registry, registry
from fuseline.engine.rewriting.rewriter import Rewriter

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { a = Identity(x)  b = Relu(a)  c = Identity(b)  y = Relu(c) }"""


class DropIdentities(Pass):
    """Identity(x) → x"""

    name = "test-drop-identities"
    at_most_each: int = 100
    only: tuple[str, ...] = ()
    label: str = "plain"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        for node in list(model.graph):
            if node.op_type == "Identity" and rewriter.permit(node, "drop"):
                rewriter.redirect(node.outputs[0], node.inputs[0])
                rewriter.remove(node)
        return rewriter.changes


class Liar(Pass):
    """x → x, while claiming more"""

    name = "test-liar"
    claim: int = 1
    really: bool = False

    def run(self, model: Model, rewriter: Rewriter) -> int:
        if self.really:
            next(iter(model.graph)).op_type = "Neg"
        return self.claim


class InferenceOnly(Pass):
    """x → x, at inference only"""

    name = "test-inference-only"
    phase = "inference"
    counterpart = "test-drop-identities"

    def run(self, model: Model, rewriter: Rewriter) -> int:
        return 0


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for pass_ in (DropIdentities, Liar, InferenceOnly):
        registry.register(pass_)
    yield
    for pass_ in (DropIdentities, Liar, InferenceOnly):
        del registry._passes[pass_.name]


def test_text_python_and_yaml_round_trip() -> None:
    pipeline = Pipeline.of(
        DropIdentities(at_most_each=3, only=("a", "b")),
        Repeat((DropIdentities(label="two, words"), Liar(claim=0)), at_most=4),
    )
    assert str(pipeline) == (
        "test-drop-identities{at-most-each=3,only=a+b},"
        'repeat{until=unchanged,at-most=4}(test-drop-identities{label="two, words"},test-liar{claim=0})'
    )
    assert Pipeline.parse(str(pipeline)) == pipeline
    assert Pipeline.from_yaml(pipeline.to_yaml()) == pipeline


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(
    st.text(max_size=20),
    st.integers(),
    st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1)),
)
def test_any_option_value_round_trips(label: str, number: int, only: list[str]) -> None:
    registry.register(DropIdentities)
    only = [o for o in only if o != "none"]
    pipeline = Pipeline.of(DropIdentities(label=label, at_most_each=number, only=tuple(only)))
    assert Pipeline.parse(str(pipeline)) == pipeline


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a pass name at column 1"),
        ("test-liar{", "expected an option name"),
        ("test-liar{claim=1", "expected ','"),
        ("test-liar)", "expected ',' or the end"),
        ("test-lair", "did you mean 'test-liar'"),
        ("test-liar{clame=1}", "did you mean 'claim'"),
        ("test-liar{claim=one}", "must be a whole number, not 'one'"),
        ("test-liar(test-liar)", "only 'repeat' can"),
        ("repeat", "needs passes in parentheses"),
        ("test-liar{claim=1,claim=2}", "given twice"),
    ],
)
def test_malformed_text(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message.replace("(", r"\(")):
        Pipeline.parse(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1", "not valid YAML"),
        ("a: 1", "list under 'passes'"),
        ("passes: []\npases: 1", "unknown key"),
        ("passes: []\npasses: []", "'passes' is given twice"),
        ("passes: [{repeat: {at-most: 0}, passes: [keep-outputs]}]", "would run nothing"),
        ("passes: [{repeat: {}, passes: [keep-outputs], at-most: 2}]", "cannot read the entry"),
    ],
)
def test_malformed_yaml(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Pipeline.from_yaml(text)


def test_run_leaves_the_given_model_alone() -> None:
    model = Model.from_text(TEXT)
    result = Pipeline.parse("test-drop-identities").run(model)
    assert [n.op_type for n in result.model.graph] == ["Relu", "Relu"]
    assert len(model.graph) == 4
    assert [r.site for r in result.records[0].rewrites] == ["Identity_0", "Identity_2"]


def test_claims_are_checked() -> None:
    model = Model.from_text(TEXT)
    with pytest.raises(PassError, match="reported 1 change but changed nothing"):
        Pipeline.of(Liar()).run(model)
    with pytest.raises(PassError, match="changed the graph but reported no change"):
        Pipeline.of(Liar(claim=0, really=True)).run(model)


def test_a_graph_that_cannot_run_is_the_fault_of_its_pass() -> None:
    class LastFirst(Pass):
        """a → b → c becomes b → c → a"""

        name = "test-last-first"

        def run(self, model: Model, rewriter: Rewriter) -> int:
            first = next(iter(model.graph))
            model.graph.remove(first)
            model.graph.append(first)
            return 1

    with pytest.raises(PassError, match="left a graph that cannot run: the nodes of 'g' are") as found:
        Pipeline.of(LastFirst()).run(Model.from_text(TEXT), [Verify("outputs")])
    assert "test_pipeline.py:" in found.value.__notes__[0]


def test_limits_withhold_rewrites() -> None:
    result = Pipeline.of(DropIdentities()).run(Model.from_text(TEXT), limits={1: 1})
    assert [n.op_type for n in result.model.graph] == ["Relu", "Identity", "Relu"]


def test_repeat_stops_when_unchanged() -> None:
    result = Pipeline.of(Repeat((DropIdentities(),), at_most=9)).run(Model.from_text(TEXT))
    assert len(result.records) == 2


def test_disable_and_stop_after() -> None:
    pipeline = Pipeline.parse("test-drop-identities,test-liar")
    assert Pipeline.run(pipeline, Model.from_text(TEXT), stop_after="test-drop-identities").changes == 2
    assert Pipeline.run(pipeline, Model.from_text(TEXT), disable=["test-liar"]).changes == 2
    with pytest.raises(PipelineError, match="did you mean 'test-liar'"):
        pipeline.run(Model.from_text(TEXT), disable=["test-lier"])


class RefuseDrops(Observer):
    def after(self, record: PassRecord, model: Model) -> None:
        if record.changes:
            raise GateFailed("no changes wanted")


def test_a_failing_pass_is_reverted_and_the_rest_goes_on() -> None:
    pipeline = Pipeline.parse("test-drop-identities,test-liar{claim=0}")
    with pytest.raises(GateFailed):
        pipeline.run(Model.from_text(TEXT), [RefuseDrops()])
    result = pipeline.run(Model.from_text(TEXT), [RefuseDrops()], revert_failing=True)
    assert len(result.model.graph) == 4
    assert [r.name for r in result.reverted] == ["test-drop-identities"]
    assert len(result.records) == 2


def test_inference_pass_is_refused_on_a_training_graph() -> None:
    model = Model.from_text(TEXT)
    model.establish(Property.TRAINING)
    with pytest.raises(PassError, match="use 'test-drop-identities' instead"):
        Pipeline.of(InferenceOnly()).run(model)


def test_duplicate_names_are_refused_naming_both(tmp_path: Path) -> None:
    source = (
        'from fuseline.engine.pass_ import Pass\nclass A(Pass):\n    """a → b"""\n    name = "same"\n'
        "    def run(self, model, rewriter):\n        return 0\n"
    )
    for file in ("one.py", "two.py"):
        (tmp_path / file).write_text(source)
    fresh = Registry()
    fresh.load_plugin(tmp_path / "one.py")
    with pytest.raises(FuselineError) as raised:
        fresh.load_plugin(tmp_path / "two.py")
    assert "one.py" in str(raised.value)
    assert "two.py" in str(raised.value)


def test_plugin_errors(tmp_path: Path) -> None:
    fresh = Registry()
    with pytest.raises(FuselineError, match="no plugin file"):
        fresh.load_plugin(tmp_path / "none.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(FuselineError, match="defines no pass"):
        fresh.load_plugin(tmp_path / "empty.py")
    (tmp_path / "broken.py").write_text("1/0")
    with pytest.raises(FuselineError, match="ZeroDivisionError"):
        fresh.load_plugin(tmp_path / "broken.py")


def test_provenance_both_ways() -> None:
    class Swap(Pass):
        """Relu → Neg"""

        name = "test-swap"

        def run(self, model: Model, rewriter: Rewriter) -> int:
            import onnx_ir as ir

            for node in list(model.graph):
                if node.op_type == "Relu" and rewriter.permit(node):
                    new = ir.node("Neg", [node.inputs[0]])
                    rewriter.replace([node], [new], [(node.outputs[0], new.outputs[0])])
            return rewriter.changes

    result = Pipeline.of(Swap()).run(Model.from_text(TEXT))
    new = [n for n in result.model.graph if n.op_type == "Neg"]
    assert new[0].metadata_props["fuseline.pass"] == "test-swap"
    assert new[0].metadata_props["fuseline.replaces"] == '["Relu_1"]'
    rewrite = result.records[0].rewrites[1]
    assert rewrite.removed == ["Relu_3"]
    assert rewrite.added == [new[1].name]
    assert [o.name for o in result.model.graph.outputs] == ["y"]


WRONG_YAML = {
    "- fold-constants\n- fold-constnts": r"mine.yaml:3: there is no pass named 'fold-constnts'",
    "- fold-constants: {growht: 1}": r"mine.yaml:2: 'fold-constants' has no option 'growht'",
    "- fold-constants: {growth: on}": r"mine.yaml:2: option 'growth' .* must be a whole number, not True",
    "- fold-constants{growth=1}": r"mine.yaml:2: .* is no name of a pass\n.*`name: \{option: value\}`",
    "- inference: {a: 1}": r"mine.yaml:2: 'inference' is a ready pipeline, and takes no options",
    "- repeat: {passes: [a]}": r"mine.yaml:2: 'repeat' takes options, and beside it a list",
    "- repeat: {at-most: 2}\n  passes:\n  - nothing": r"mine.yaml:4: there is no pass named 'nothing'",
    "- 5": r"mine.yaml:2: cannot read the entry 5",
    "  []": r"mine.yaml has no passes",
}


@pytest.mark.parametrize("entries", WRONG_YAML)
def test_a_mistake_in_a_file_has_its_line(entries: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"passes:\n{entries}\n")
    with pytest.raises(PipelineError, match=WRONG_YAML[entries]):
        Pipeline.from_yaml(path)


def test_what_yaml_reads_as_something_else_is_no_text() -> None:
    for content in ("on", "[a]", "{a: 1}", "null"):
        with pytest.raises(PipelineError, match="must be a list, each a text"):
            Pipeline.from_yaml(f"passes:\n- keep-outputs: {{names: [{content}]}}")
