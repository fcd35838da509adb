"""Memory passes: the order that they make, the peak that they reach, and results the same to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.memory import Origin, Simulation, at_sizes, symbols
from fuseline.engine.memory.arena import held
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.step import TrainingStep
from fuseline.kernels.allocations import counter_path, preloaded

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'


def model(text: str) -> Model:
    return Model.from_text(HEADER + text)


def order(made: Model) -> list[str]:
    return [str(node.outputs[0].name) for node in made.graph]


def test_a_shape_is_read_where_the_value_is_made() -> None:
    before = model(
        "g (float[N,4] x) => (float[N,4] y, int64[2] s) { a = Relu(x) b = Exp(a) y = Neg(b) s = Shape(a) }"
    )
    after = Pipeline.parse("hoist-shapes").run(before).model
    assert order(after) == ["a", "s", "b", "y"]


def test_a_table_moves_to_its_reader_and_lowers_the_peak() -> None:
    before = model(
        "g (float[N,N] x, float[N,1] v, float[1,N] w) => (float[N,N] y) "
        "{ t = Mul(v, w) a = MatMul(x, x) b = MatMul(a, x) c = ReduceMax(b) y = Mul(t, c) }"
    )
    after = Pipeline.parse("order-for-memory{sizes=N=100}").run(before).model
    assert order(after) == ["a", "b", "c", "t", "y"]
    peaks = [Simulation(at_sizes(m, {"N": 100})).peak for m in (before, after)]
    assert peaks == [3 * 40_000, 2 * 40_000 + 4]


def test_views_and_work_in_place_take_no_memory() -> None:
    made = model(
        "g (float[N,4] x) => (float[M] y) <int64[1] flat = {-1}> "
        "{ a = MatMul(x, x4) b = Relu(a) c = Reshape(b, flat) y = Tanh(c) }".replace("x4", "w").replace(
            "<int64[1] flat", "<float[4,4] w = {" + ",".join(["1.0"] * 16) + "}, int64[1] flat"
        )
    )
    found = Simulation(at_sizes(made, {"N": 10}))
    assert found.peak == 320, "one buffer serves three; the output is the caller's"
    assert found.unknown == []


def test_a_choice_takes_what_it_selects_while_it_runs() -> None:
    made = model(
        "g (float[N,4] x) => (float[N,4] y) <float zero = {0.0}> "
        "{ c = Greater(x, zero) r = Where(c, x, zero) y = Neg(r) }"
    )
    found = Simulation(at_sizes(made, {"N": 10}))
    assert found.alive == [40, 40 + 3 * 160, 2 * 160]
    assert found.by_origin()[1] == {Origin.WORKSPACE: 2 * 160, Origin.TEMPORARY: 200}


def test_an_unknown_dimension_is_refused_by_name() -> None:
    with pytest.raises(Exception, match="no input has a dimension 'btch'"):
        at_sizes(model("g (float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }"), {"btch": 3})


@pytest.fixture(scope="module")
def step_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small net with dropout, differentiated and with its optimizer."""
    torch = pytest.importorskip("torch")
    import fuseline

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(4)])
            self.norm = torch.nn.LayerNorm(16)
            self.drop = torch.nn.Dropout(0.25)

        def forward(self, x: Any, labels: Any) -> Any:
            for layer in self.layers:
                x = self.norm(x + self.drop(torch.nn.functional.gelu(layer(x))))
            return torch.nn.functional.cross_entropy(x, labels)

    torch.manual_seed(0)
    inputs = {"x": torch.randn(6, 16), "labels": torch.randint(0, 16, (6,))}
    exported = fuseline.export(Net().train(), train=True, example_inputs=inputs, check=False)
    return Pipeline.parse("training,insert-optimizer").run(exported).model


@pytest.mark.native
@pytest.mark.parametrize("what", ["cheap", "layers", "most"])
def test_recomputed_steps_are_the_same_to_the_bit(step_model: Model, what: str) -> None:
    sizes = dict.fromkeys(symbols(step_model), 2048)
    options = "+".join(f"{name}={size}" for name, size in sizes.items())
    again = Pipeline.parse(f"hoist-shapes,recompute{{what={what},sizes={options}}}").run(step_model)
    before, after = (Simulation(at_sizes(m, sizes)).peak for m in (step_model, again.model))
    assert after < before
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(6, 16)).astype(np.float32), "labels": rng.integers(0, 16, 6)}
    states = []
    for made in (step_model, again.model):
        step = TrainingStep(made, threads=1)
        step.settings.learning_rate = 0.01
        for seed in range(3):
            step.run(batch, seed=seed)
        states.append(step.state_dict())
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)


@pytest.mark.native
def test_recompute_takes_the_first_that_fits(step_model: Model) -> None:
    sizes = dict.fromkeys(symbols(step_model), 2048)
    at = "+".join(f"{name}={size}" for name, size in sizes.items())

    def made(options: str) -> Model:
        return Pipeline.parse(f"recompute{{{options},sizes={at}}}").run(step_model).model

    by_hand = {what: made(f"what={what}") for what in ("cheap", "layers", "most")}
    takes = {what: held(Simulation(at_sizes(m, sizes))) for what, m in by_hand.items()}
    assert max(takes.values()) < held(Simulation(at_sizes(step_model, sizes)))
    for limit in takes.values():
        first = next(what for what, size in takes.items() if size <= limit)
        assert str(made(f"budget={limit}B")) == str(by_hand[first])
    assert str(made("budget=1.0")) == str(step_model)
    with pytest.raises(FuselineError, match=r"fits into 10\.0 kB; the smallest reachable is [\d.]+ kB"):
        made("budget=10kB")


@pytest.mark.native
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_dropout_of_every_kind_is_drawn_again(name: str) -> None:
    """Of embeddings, of attention, behind layers and in front of the head: the same in every plan."""
    from fuseline.exporters import export
    from fuseline.tools.campaigns import zoo

    net = zoo.build(name, dropout=0.2)
    batch = {k: v.numpy() for k, v in zoo.batch(net, batch=3, seq=24).items()}
    made = Pipeline.parse("training,insert-optimizer").run(export(net, train=True, check=False)).model
    assert len([n for n in made.graph if SEED in [v.name for v in n.inputs if v is not None]]) > 3
    at = "+".join(f"{symbol}=64" for symbol in symbols(made))
    plans = [
        f"hoist-shapes,order-for-memory{{sizes={at}}},recompute{{what={what},sizes={at}}}{early}"
        for what in ("cheap", "layers", "most")
        for early in ("", ",release-early,sparse-embedding-gradient")
    ]
    states = []
    for passes in ("", *plans):
        planned = Pipeline.parse(passes).run(made).model if passes else made
        assert not passes or len(planned.graph) > len(made.graph)
        step = TrainingStep(planned, threads=2)
        step.settings.learning_rate = 0.01
        for seed in (3, 4, 5):
            step.run({k: v for k, v in batch.items() if k in step.inputs}, seed=seed)
        states.append(step.state_dict() | {f"{n}.m": v.copy() for n, v in step.moments("exp_avg").items()})
    for state, passes in zip(states[1:], plans, strict=True):
        for key, value in states[0].items():
            np.testing.assert_array_equal(value, state[key], err_msg=f"{passes}: {key}")


_MEASURE = """
import json, sys
import numpy as np
from fuseline.engine.model import Model
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.step import TrainingStep
from fuseline.kernels.allocations import counted

rng = np.random.default_rng(0)
batch = {"x": rng.normal(size=(16384, 16)).astype(np.float32), "labels": rng.integers(0, 16, 16384)}
found = {}
for path in sys.argv[1:]:
    step = TrainingStep(Model.load(path), threads=1, arena=False)
    for seed in range(2):
        step.run(batch, seed=seed)
    with counted() as allocations:
        step.run(batch, seed=2)
    found[path] = [step.memory(batch).growth, allocations.growth]
print(json.dumps(found))
"""


@pytest.mark.native
@pytest.mark.skipif(counter_path() is None, reason="the counter of allocations is not built here")
def test_predicted_and_counted_peaks_agree(step_model: Model, tmp_path: Path) -> None:
    at = "+".join(f"{name}=16384" for name in symbols(step_model))
    plans = {
        "plain": "",
        "ordered": f"order-for-memory{{sizes={at}}}",
        "cheap": f"recompute{{what=cheap,sizes={at}}}",
        "layers": f"recompute{{what=layers,sizes={at}}}",
        "most": f"recompute{{what=most,sizes={at}}}",
        "early": f"recompute{{what=layers,sizes={at}}},release-early",
    }
    paths = []
    for name, passes in plans.items():
        made = Pipeline.parse(passes).run(step_model).model if passes else step_model
        paths.append(str(tmp_path / f"{name}.onnx"))
        made.save(paths[-1])
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *paths],
        env={**os.environ, **preloaded()},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    for path, (predicted, counted) in found.items():
        assert predicted == pytest.approx(counted, rel=0.02), path
    assert max(found[paths[2]][1], found[paths[3]][1]) < found[paths[0]][1]


def state_after(made: Model, steps: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(6, 16)).astype(np.float32), "labels": rng.integers(0, 16, 6)}
    step = TrainingStep(made, threads=1)
    step.settings.learning_rate = {p.name: 0.01 * (i + 1) for i, p in enumerate(made.parameters)}
    norms = [step.run(batch, ["loss", "optimizer.gradient_norm"], seed=seed) for seed in range(steps)]
    return step.state_dict() | step.moments("exp_avg") | {"steps": step.steps, "last": norms[-1]}


@pytest.mark.native
def test_early_updates_are_the_same_to_the_bit(step_model: Model) -> None:
    early = Pipeline.parse("release-early").run(step_model).model
    assert len([n for n in early.graph if n.op_type == "FusedAdamW"]) == 10
    one, other = state_after(step_model), state_after(early)
    assert one.pop("steps") == other.pop("steps") == 3
    last, other_last = one.pop("last"), other.pop("last")
    assert last["loss"] == other_last["loss"]
    np.testing.assert_allclose(
        last["optimizer.gradient_norm"], other_last["optimizer.gradient_norm"], rtol=1e-6
    )
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
    sizes = dict.fromkeys(symbols(step_model), 64)
    held = [Simulation(at_sizes(m, sizes)) for m in (step_model, early)]
    assert held[1].alive[-1] < held[0].alive[-1], "no gradient waits for the end"


@pytest.mark.native
def test_early_updates_refuse_what_they_cannot_do(step_model: Model) -> None:
    early = Pipeline.parse("release-early").run(step_model).model
    step = TrainingStep(early, threads=1)
    step.settings.max_norm = 1.0
    with pytest.raises(FuselineError, match="cannot clip by the norm of all"):
        step.run({"x": np.zeros((2, 16), np.float32), "labels": np.zeros(2, np.int64)})
    with pytest.raises(FuselineError, match="must run in its order"):
        TrainingStep(early, threads=1, optimize="all")
    with pytest.raises(FuselineError, match="ordered"):
        Pipeline.parse("recompute").run(early)


@pytest.mark.native
def test_a_budget_takes_the_cheapest_plan_that_fits(step_model: Model) -> None:
    largest = {"x": np.empty((4096, 16), np.float32), "labels": np.empty(4096, np.int64)}
    free = TrainingStep(step_model, threads=1, memory_budget=1.0, largest=largest)
    tight = TrainingStep(step_model, threads=1, memory_budget=0.97, largest=largest)
    assert free.memory_plan is not None
    assert tight.memory_plan is not None
    assert free.memory_plan.name == "as it is"
    assert "recompute" in tight.memory_plan.name
    assert tight.memory(largest).peak <= 0.97 * free.memory(largest).peak
    assert tight.memory_plan.extra > 0
    with pytest.raises(
        FuselineError, match=r"no plan fits into 10\.0 kB; the smallest reachable is [\d.]+ kB"
    ):
        TrainingStep(step_model, threads=1, memory_budget="10kB", largest=largest)
    with pytest.raises(ModelError, match="the graph has no input 'y'; it takes labels, x"):
        TrainingStep(step_model, threads=1, memory_budget=0.97, largest={"y": largest["x"]})
    for odd in ([largest], [], {"x": (4096, 16), "labels": (4096,)}):
        with pytest.raises(FuselineError, match=r"`largest` is no batch: it is a dictionary of arrays by"):
            TrainingStep(step_model, threads=1, memory_budget=0.97, largest=odd)  # type: ignore[arg-type]
    with pytest.raises(FuselineError, match=r"`largest` does not tell the size '.*' of the input 'x'"):
        TrainingStep(step_model, threads=1, memory_budget=0.97, largest={})
    larger = {"x": np.zeros((8192, 16), np.float32), "labels": np.zeros(8192, np.int64)}
    with pytest.raises(FuselineError, match=r"this run would take .* and the memory_budget is"):
        tight.run(larger)
    assert tight.steps == 0
    tight.run({name: value[:100] for name, value in larger.items()})
    for odd in ("much", "2XB", "", "0", "nanGB", "infGB"):
        with pytest.raises(FuselineError, match=f"'{odd}' is no amount of memory"):
            TrainingStep(step_model, threads=1, memory_budget=odd, largest=largest)
    for fraction in (0, -1, 1.5, float("nan"), True):
        with pytest.raises(FuselineError, match="is no fraction of memory"):
            TrainingStep(step_model, threads=1, memory_budget=fraction, largest=largest)


@pytest.mark.native
def test_what_holds_the_peak_has_an_origin(step_model: Model) -> None:
    found = Simulation(at_sizes(step_model, dict.fromkeys(symbols(step_model), 64)))
    holders = found.holders()
    assert sum(h.bytes for h in holders) == found.peak
    assert {Origin.SAVED, Origin.GRADIENT} & {h.origin for h in holders}
    assert all(sum(row.values()) == total for row, total in zip(found.by_origin(), found.alive, strict=True))


def test_the_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fuseline.tools.main import app

    model("g (float[batch,4] x) => (float[batch,4] y) { a = Exp(x) y = Relu(a) }").save(tmp_path / "m.onnx")
    arguments = [
        "plan",
        str(tmp_path / "m.onnx"),
        "--batch",
        "8",
        "--json",
        "--picture",
        str(tmp_path / "p.svg"),
    ]
    made = CliRunner().invoke(app, arguments)
    assert made.exit_code == 0, made.output
    plan = json.loads(made.output)["plans"]["as it is"]
    assert plan["peak"] == 256
    assert plan["by_module_and_origin"] == {"(none)": {"temporaries": 128, "outputs": 128}}
    assert [(p["value"], p["bytes"]) for p in plan["arena"]["places"]] == [("a", 128), ("y", 128)]
    arguments[-1] = str(tmp_path / "p.html")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    page = (tmp_path / "p.html").read_text()
    assert page.count("<svg") == 2
    assert "<caption>MB at the peak, as it is</caption><tr><th>torch module</th><th>MB</th>" in page
    drawn = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    labels = [child.get("aria-label") for child in drawn]
    assert labels == ["memory against extra time", "live memory over a run"]
