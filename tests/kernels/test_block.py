"""One block of memory for the values of a run, on a real session: the same results, on every thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest

from fuseline.engine.execution.block import Block, allocator
from fuseline.kernels import loader
from fuseline.kernels.operator import Array

_WIDTH = 96
_TEXT = """
<ir_version: 10, opset_import: ["" : 17]>
chain (float[N,96] x, float[96,96] w) => (float[N,96] y) {
  a = MatMul(x, w)
  b = Tanh(a)
  c = MatMul(b, w)
  d = Add(a, c)
  e = Sigmoid(d)
  f = Mul(e, b)
  y = MatMul(f, w)
}
"""


def _session() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_reuse = options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    loader.register(options)
    if allocator() is None:
        pytest.skip("this runtime takes no allocator of ours")
    options.add_session_config_entry("session.use_env_allocators", "1")
    return onnxruntime.InferenceSession(onnx.parser.parse_model(_TEXT).SerializeToString(), options)


def _feeds(rows: int, rng: np.random.Generator) -> dict[str, Array]:
    """From 256 rows on, values are so large that they are asked of the system directly while recording."""
    weight = rng.standard_normal((_WIDTH, _WIDTH)).astype(np.float32) / np.float32(10)
    return {"x": rng.standard_normal((rows, _WIDTH)).astype(np.float32), "w": weight}


def _expected(feeds: dict[str, Array]) -> Array:
    a = feeds["x"] @ feeds["w"]
    b = np.tanh(a)
    return np.asarray((b / (1 + np.exp(-(a + b @ feeds["w"])))) @ feeds["w"])


def test_runs_repeat_in_the_block(rng: np.random.Generator) -> None:
    session, kept = _session(), []
    block = Block(allocator())
    for rows in (3, 400, 3, 400, 7, 400, 3):
        feeds = _feeds(rows, rng)
        with block.run(rows):
            kept.append((session.run(None, feeds)[0], _expected(feeds)))
    assert block.placed > 0
    for found, expected in kept:  # what outlives its run is not written over by the next one
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_a_run_other_than_the_recorded_one_leaves_the_block(rng: np.random.Generator) -> None:
    session = _session()
    block = Block(allocator())
    for rows in (5, 9, 5, 400, 2, *range(100, 4000, 150)):  # in the end it is recorded no more
        feeds = _feeds(rows, rng)
        with block.run("whatever the shapes"):
            found = session.run(None, feeds)[0]
        np.testing.assert_allclose(found, _expected(feeds), rtol=1e-3, atol=1e-5)


def test_threads_share_the_block_by_turns(rng: np.random.Generator) -> None:
    """Whoever finds the block taken runs outside of it, beside the one that has it."""
    session = _session()
    wrong: list[str] = []

    def work(seed: int) -> None:
        draw, block = np.random.default_rng(seed), Block(allocator())
        for rows in (4, 300, 4, 300, 4, 300, 4, 300):
            feeds = _feeds(rows, draw)
            with block.run(rows):
                found = session.run(None, feeds)[0]
            if not np.allclose(found, _expected(feeds), rtol=1e-3, atol=1e-5):
                wrong.append(f"thread {seed}, {rows} rows")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
