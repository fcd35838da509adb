"""Grids: the same integers as ONNX Runtime, and zero where zero belongs."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.quantization.grid import Grid, quantize_array, quantize_weight, scale_and_zero
from fuseline.engine.quantization.targets import TARGETS, detect, target

GRIDS = [Grid(s, y, r) for s in (True, False) for y in (True, False) for r in (True, False)]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights_come_back_within_half_a_step(grid: Grid, axis: int | None) -> None:
    weight = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    weight[:, 2] = 0
    made = quantize_weight(weight, grid, axis)
    low, high = grid.limits
    assert made.values.min() >= low
    assert made.values.max() <= high
    step = np.broadcast_to(made.scale.reshape({None: (), 0: (-1, 1), 1: (1, -1)}[axis]), weight.shape)
    # An asymmetric grid rounds its zero point as well.
    assert (np.abs(made.restored() - weight) <= step * (0.51 if grid.symmetric else 1.01)).all()
    assert (made.restored()[:, 2] == 0).all()


def test_the_integers_are_those_of_dynamic_quantization() -> None:
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (uint8[N] q, float s, uint8 z) '
        "{ q, s, z = DynamicQuantizeLinear(x) }"
    )
    x = np.random.default_rng(3).normal(size=1000).astype(np.float32)
    there = runtime.run(runtime.session(model), {"x": x})
    grid = Grid(signed=False, symmetric=False)
    scale, zero = scale_and_zero(x.min(), x.max(), grid)
    assert (float(scale), int(zero)) == (pytest.approx(float(there["s"])), int(there["z"]))
    assert np.abs(quantize_array(x, scale, zero, grid).astype(int) - there["q"]).max() <= 1


def test_a_reduced_grid_cannot_saturate_sixteen_bits() -> None:
    low, high = Grid(reduced=True).limits
    assert 2 * 255 * max(-low, high) <= 2**15 - 1


def test_targets() -> None:
    assert detect("x86_64", {"avx2"}).name == "avx2"
    assert detect("x86_64", {"avx2", "avx512bw"}).reduce_range
    assert detect("x86_64", {"avx2", "avx512bw", "avx512_vnni"}) is TARGETS["avx512_vnni"]
    assert detect("aarch64", set()).name == "arm64"
    assert detect("x86_64", set()).reduce_range, "an unknown processor gets the safe choice"
    with pytest.raises(FuselineError, match="did you mean 'avx512_vnni'"):
        target("avx512-vnni")
