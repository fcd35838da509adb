"""ONNX Runtime's own Dropout under numbered seeds."""

from __future__ import annotations

import numpy as np

from fuseline.engine import runtime
from fuseline.engine.execution.seeds import seed_runtime
from fuseline.engine.model import Model

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[20000] x) => (float[20000] y) {
  half = Constant<value = float {0.5}>()
  training = Constant<value = bool {1}>()
  y = Dropout(x, half, training)
}"""


def test_neighbouring_seeds_draw_unrelated_masks_and_the_same_seed_the_same() -> None:
    session = runtime.session(Model.from_text(TEXT))

    def mask(seed: int) -> np.ndarray:
        seed_runtime(seed)
        return runtime.run(session, {"x": np.ones(20000, np.float32)})["y"] > 0

    masks = [mask(seed) for seed in range(8)]
    related = np.abs(np.corrcoef(masks) - np.eye(8))
    assert related.max() < 0.05
    assert np.array_equal(mask(3), masks[3])
