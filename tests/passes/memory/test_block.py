"""Steps whose values lie in one block: results, room, changing shapes, threads, what outlives a run."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.tools.measuring import resident

pytestmark = pytest.mark.native

Batch = dict[str, Any]


@pytest.fixture(scope="module")
def made() -> Model:
    torch = pytest.importorskip("torch")
    import fuseline

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)])
            self.drop = torch.nn.Dropout(0.25)

        def forward(self, x: Any, labels: Any) -> Any:
            for layer in self.layers:
                x = x + self.drop(torch.nn.functional.gelu(layer(x)))
            return torch.nn.functional.cross_entropy(x, labels)

    torch.manual_seed(0)
    inputs = {"x": torch.randn(6, 16), "labels": torch.randint(0, 16, (6,))}
    exported = fuseline.export(Net().train(), train=True, example_inputs=inputs, check=False)
    return Pipeline.parse("training,insert-optimizer").run(exported).model


def batch(rows: int) -> Batch:
    rng = np.random.default_rng(rows)
    return {"x": rng.normal(size=(rows, 16)).astype(np.float32), "labels": rng.integers(0, 16, rows)}


def step(made: Model, **options: Any) -> TrainingStep:
    found = TrainingStep(made, threads=1, **options)
    found.settings.learning_rate = 0.01
    return found


@pytest.fixture(scope="module")
def block_here(made: Model) -> None:
    """Skips where the runtime takes no memory of ours (systems other than Linux)."""
    if step(made).block is None:
        pytest.skip("the memory of this runtime cannot be given by us")


needs_block = pytest.mark.usefixtures("block_here")


def trained(made: Model, sizes: list[int], **options: Any) -> list[Any]:
    running = step(made, **options)
    losses = [running.run(batch(rows), seed=i)["loss"] for i, rows in enumerate(sizes)]
    return [*losses, *running.state_dict().values()]


def test_results_are_the_same_to_the_bit(made: Model) -> None:
    sizes = [64, 64, 2048, 7, 2048, 900, 64, 2049, 2049, 7]
    for one, other in zip(trained(made, sizes), trained(made, sizes, arena=True), strict=True):
        np.testing.assert_array_equal(one, other)


@needs_block
def test_a_block_is_as_large_as_what_is_alive(made: Model) -> None:
    running = step(made)
    for _ in range(2):
        running.run(batch(3001))
    assert running.block is not None
    placed, size = running.block
    alive = running.memory(batch(3001)).growth
    assert placed > len(list(running.model.graph)) / 2
    assert alive / 2 < size <= 1.1 * alive + 4096


@needs_block
def test_what_finds_room_needs_no_places(made: Model) -> None:
    running = step(made)
    for rows in (3002, 3002, 11, 11, 500):
        running.run(batch(rows))
    assert running.block is not None
    placed, size = running.block
    assert placed > len(list(running.model.graph)) / 2
    assert size == 0


@needs_block
@pytest.mark.skipif(not resident.measurable(), reason="the system does not tell what is resident")
def test_a_block_that_is_too_small_gives_its_memory_back(made: Model) -> None:
    running = step(made)
    for rows in (100_000, 100_000):
        running.run(batch(rows))
    larger = batch(250_000)
    before = resident.held()
    resident.forget_peak()
    running.run(larger)
    alive = [running.memory(given).growth for given in (batch(100_000), larger)]
    assert alive[0] > 20e6
    assert resident.peak() - before < alive[1] - alive[0] / 2, "what lay in the block is not there twice"
    running.run(larger)
    assert running.block is not None
    assert running.block[0] > 0


def test_outputs_outlive_their_run(made: Model) -> None:
    running = step(made)
    kept = [running.run(batch(100), seed=i)["loss"] for i in range(4)]
    values = [float(loss) for loss in kept]
    assert len(set(values)) == 4
    running.run(batch(4000))
    assert [float(loss) for loss in kept] == values


def test_threads_do_not_share_it(made: Model) -> None:
    sizes = [300, 64, 300, 1000, 64] * 4
    expected = trained(made, sizes, arena=True)
    found: dict[int, list[Any]] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: trained(made, sizes)})) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for results in found.values():
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_failed_run_leaves_it_as_it_was(made: Model) -> None:
    running = step(made)
    running.run(batch(128))
    for _ in range(2):
        with pytest.raises(Exception, match="failed in the step"):
            running.run({**batch(128), "labels": np.full(128, 99)})
    for _ in range(2):
        running.run(batch(128))
    assert running.block is None or running.block[0] > 0
