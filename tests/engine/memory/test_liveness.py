"""Random graphs: what the simulation says is alive is what the allocator counts in a run."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuseline.engine.memory import Simulation, at_sizes
from fuseline.engine.memory.arena import plan_arena
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.kernels.allocations import counter_path, preloaded

GRAPHS = 40
SIDE = 512
VALUE = SIDE * SIDE * 4
_TWO = ("Add", "Mul", "Sub", "MatMul", "Max", "Where")
_ONE = ("Relu", "Tanh", "Sigmoid", "Neg", "Exp", "Transpose", "Softmax", "Identity", "Reshape")

_RUN = """
import json, sys
import numpy as np
from fuseline.engine.execution.plan import SessionOptions
from fuseline.engine.model import Model
from fuseline.engine.runtime import session
from fuseline.kernels.allocations import counted

found = []
for path in sys.argv[1:]:
    options = SessionOptions("none", arena=False)
    running = session(Model.load(path), threads=1, options=lambda settings: options.apply(settings, "graph"))
    names = [o.name for o in running.get_outputs()]
    io = running.io_binding()
    for value in running.get_inputs():
        io.bind_cpu_input(value.name, np.full((512, 512), 0.01, np.float32))
    for _ in range(2):
        io.clear_binding_outputs()
        for name in names:
            io.bind_output(name)
        with counted() as allocations:
            running.run_with_iobinding(io)
    found.append(allocations.growth)
print(json.dumps(found))
"""


def random_graph(seed: int) -> Model:
    """Square matrices through operators that take memory, work in place, or give views; some are returned."""
    rng = random.Random(seed)
    values, lines = ["x", "y"], []
    for index in range(rng.randint(4, 24)):
        # Mostly what was made lately, so that lives end; sometimes what is old.
        recent = values[-3:] if rng.random() < 0.7 else values
        made, one, other = f"v{index}", rng.choice(recent), rng.choice(values)
        if rng.random() < 0.5:
            name = rng.choice(_TWO)
            if name == "Where":
                lines.append(f"c{index} = Greater({one}, {other}) {made} = Where(c{index}, {one}, {other})")
            else:
                lines.append(f"{made} = {name}({one}, {other})")
        else:
            name = rng.choice(_ONE)
            lines.append(f"{made} = {name}({one}, same)" if name == "Reshape" else f"{made} = {name}({one})")
        values.append(made)
    outputs = {values[-1], *rng.sample(values[2:], rng.randint(0, 2))}
    text = (
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        f"g (float[N,N] x, float[N,N] y) => ({', '.join(f'float[N,N] {o}' for o in sorted(outputs))}) "
        f"<int64[2] same = {{0, -1}}> {{ {' '.join(lines)} }}"
    )
    return Pipeline.parse("remove-unused").run(Model.from_text(text)).model


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_places_of_random_graphs(seed: int) -> None:
    """What is alive at a node shares no byte, and the block is no larger than all values together."""
    simulation = Simulation(at_sizes(random_graph(seed), {"N": 8}))
    arena = plan_arena(simulation)
    assert simulation.peak <= arena.size <= sum(size for *_, size in simulation.spans())
    for position, alive in enumerate(simulation.alive):
        taken = sorted((p.offset, p.end) for p in arena.places if p.span.first <= position <= p.span.last)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(taken))
        assert sum(end - begin for begin, end in taken) == alive


@pytest.mark.skipif(counter_path() is None, reason="the counter of allocations is not built here")
def test_simulated_liveness_equals_the_counted(tmp_path: Path) -> None:
    models = [random_graph(seed) for seed in range(GRAPHS)]
    paths = []
    for index, model in enumerate(models):
        paths.append(str(tmp_path / f"{index}.onnx"))
        model.save(paths[-1])
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *paths],
        env={**os.environ, **preloaded()},
        capture_output=True,
        text=True,
        check=True,
    )
    counted = json.loads(done.stdout.splitlines()[-1])
    predicted = [Simulation(at_sizes(model, {"N": SIDE})).growth for model in models]
    # In whole values: each takes up to two pages more than its bytes, a run some memory of its own.
    assert [round(p / VALUE) for p in predicted] == [round(c / VALUE) for c in counted]
    assert max(abs(p - c) for p, c in zip(predicted, counted, strict=True)) < VALUE / 4
    assert len({round(p / VALUE) for p in predicted}) > 4, "the graphs differ"
