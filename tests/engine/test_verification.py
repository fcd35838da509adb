"""A planted fault is caught by verification, located by bisection, and skipped by reverting."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_ir as ir
import pytest
import typer

from fuseline.engine.bisect import bisect
from fuseline.engine.determinism import deterministic
from fuseline.engine.errors import FuselineError, GateFailed
from fuseline.engine.inputs import load_npz
from fuseline.engine.model import Model
from fuseline.engine.observers import Verify
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import registry
from fuseline.engine.reproducer import write_reproducer
from fuseline.engine.tolerance import EXACT, TOLERANCES, tolerance_for
from fuseline.engine.verification import Verifier, compare


def _faulty() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faulty", Path(__file__).with_name("faulty.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


faulty = _faulty()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = faulty.write_plugin(tmp_path_factory.mktemp("plugin"), "double-to-add")
    registry.load_plugin(path)
    return path


@pytest.fixture
def pipeline(plugin: Path) -> Pipeline:
    return Pipeline.parse("double-to-add,double-to-add-relu")


def test_verify_catches_the_planted_fault(pipeline: Pipeline) -> None:
    with pytest.raises(GateFailed) as caught:
        pipeline.run(faulty.model(), [Verify("outputs")])
    message = str(caught.value)
    assert "pass 1 'double-to-add' changed the outputs" in message
    assert "output 'y'" in message
    assert "before" in message
    assert "after, relative error" in message


def test_a_right_pass_goes_through(plugin: Path) -> None:
    observer = Verify("outputs")
    result = Pipeline.parse("double-to-add{wrong-at=0},double-to-add-relu").run(faulty.model(), [observer])
    assert result.changes == 5
    assert observer.checked == 2


def test_revert_failing_goes_on_without_the_pass(pipeline: Pipeline) -> None:
    result = pipeline.run(faulty.model(), [Verify("outputs")], revert_failing=True)
    assert [r.name for r in result.reverted] == ["double-to-add"]
    operators = [n.op_type for n in result.model.graph]
    assert operators.count("Mul") == 4
    assert operators.count("Relu") == 1


def test_bisect_finds_the_rewrite(plugin: Path) -> None:
    model = faulty.model()
    pipeline = Pipeline.parse("double-to-add-relu,double-to-add,double-to-add-relu")
    told: list[str] = []
    culprit = bisect(model, pipeline, Verifier(model), tell=told.append)
    assert culprit is not None
    assert culprit.step.index == 2
    assert (culprit.position, culprit.total) == (3, 4)
    assert culprit.rewrite is not None
    assert culprit.rewrite.note == "x · 2 → x + x"
    assert culprit.rewrite.site == culprit.diff.graph.removed[0].name
    assert [n.op for n in culprit.diff.graph.added] == ["Constant", "Mul"]
    assert culprit.report.mismatches[0].name == "output 'y'"
    assert told


def test_bisect_finds_nothing_in_a_right_pipeline(plugin: Path) -> None:
    model = faulty.model()
    assert bisect(model, Pipeline.parse("double-to-add{wrong-at=0}"), Verifier(model)) is None


def test_bisect_finds_the_rewrite_that_crashes(tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text(
        faulty.PLUGIN.format(name="crashing").replace("seen += 1", "seen += 1; assert seen < 2, 'no more'")
    )
    registry.load_plugin(path)
    model = faulty.model()
    culprit = bisect(model, Pipeline.parse("crashing"), Verifier(model))
    assert culprit is not None
    assert culprit.position == 2
    assert "no more" in culprit.report.error


def test_the_reproducer_is_small_and_reruns(plugin: Path, pipeline: Pipeline, tmp_path: Path) -> None:
    model = faulty.model()
    verifier = Verifier(model)
    culprit = bisect(model, Pipeline.parse("double-to-add{wrong-at=1}"), verifier)
    assert culprit is not None
    written = write_reproducer(tmp_path / "repro", culprit, verifier, plugins=[plugin])
    assert written.nodes == 1
    small = Model.load(tmp_path / "repro" / "model.onnx")
    inputs = load_npz(tmp_path / "repro" / "inputs.npz", small)
    again = bisect(
        small,
        Pipeline.parse((tmp_path / "repro" / "pipeline.txt").read_text().strip()),
        Verifier(small, inputs=inputs),
    )
    assert again is not None
    assert again.rewrite is not None
    assert written.command in (tmp_path / "repro" / "README.md").read_text()


def test_a_reproducer_does_not_clear_a_folder(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    model = faulty.model()
    verifier = Verifier(model)
    culprit = bisect(model, Pipeline.parse("double-to-add"), verifier)
    assert culprit is not None
    with pytest.raises(FuselineError, match=r"holds other files: thesis\.tex"):
        write_reproducer(tmp_path, culprit, verifier)


def test_bisect_on_the_command_line(plugin: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fuseline.tools.commands.bisect import bisect_command

    app = typer.Typer()
    app.command()(bisect_command)
    faulty.model().save(tmp_path / "model.onnx")
    command = [str(tmp_path / "model.onnx"), "--pipeline", "double-to-add", "--plugin", str(plugin)]
    found = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "repro")])
    assert found.exit_code == 1, found.output
    assert "rewrite 3 of 4" in found.output
    assert (tmp_path / "repro" / "my_passes.py").is_file()
    command[2] = "double-to-add{wrong-at=0}"
    assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.parametrize(
    ("was", "now", "equal"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], True),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, 1e-9], [1.0, 0.0], True),
        ([1e-5, 2e-5], [1.01e-5, 2e-5], False),
        ([100.0, 1.0], [100.0, 1.01], False),
        ([0.0, 0.0], [1e-9, 0.0], True),
    ],
)
def test_comparison_of_floats(was: list[float], now: list[float], equal: bool) -> None:
    found = compare("y", np.array(was, np.float32), np.array(now, np.float32), TOLERANCES["float32"])
    assert (found is None) == equal


def test_the_report_names_the_worst_element() -> None:
    was = np.ones((2, 3), np.float32)
    now = was.copy()
    now[0, 1], now[1, 2] = 1.1, 1.5
    found = compare("y", was, now, TOLERANCES["float32"])
    assert str(found) == (
        "y: 2 of 6 elements differ; the worst is [1, 2]: 1 before, 1.5 after, relative error 0.5"
    )


def test_types_shapes_and_integers_must_agree_exactly() -> None:
    assert tolerance_for("int64") is EXACT
    ints = np.array([1, 2])
    assert "has type" in str(compare("y", ints, ints.astype(np.int32), EXACT))
    assert "has shape [1, 2] instead of [2]" in str(compare("y", ints, ints[None], EXACT))
    assert "[1]: 2 before, 3 after" in str(compare("y", ints, np.array([1, 3]), EXACT))


def test_random_operators_become_comparable() -> None:
    model = Model.from_text(
        """<ir_version: 10, opset_import: ["" : 20]>
        agraph (float[8,64] x) => (float[8,64] y) <float half = {0.5}, bool train = {1}> {
            d = Dropout(x, half, train)
            r = RandomUniformLike(d)
            y = Add(d, r)
        }"""
    )
    verifier = Verifier(model)
    first, second = verifier.measure(model), verifier.measure(model.clone())
    assert verifier.judge(first, second).ok
    dropout = next(n for n in deterministic(model).graph if n.op_type == "Dropout")
    assert ir.convenience.get_const_tensor(dropout.inputs[1]).numpy() == 0  # type: ignore[union-attr]


def test_gradients_need_a_training_graph() -> None:
    with pytest.raises(FuselineError, match="training graphs only"):
        Verifier(faulty.model(), "gradients")
