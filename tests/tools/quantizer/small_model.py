"""A small classifier with one fragile layer, and data for it; also the program that a test kills half-way."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from fuseline.engine.model import Model

WIDTH, CLASSES = 32, 4


def model(fragile: bool = True, layers: int = 3) -> Model:
    """Products with Relus between; a fragile one has an input channel that drowns the others on a grid."""
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,{WIDTH}] x) => (float[N,{CLASSES}] logits) {{'
    )
    previous = "x"
    for i in range(layers):
        text += f" s{i} = Mul({previous}, c{i}) m{i} = MatMul(s{i}, w{i}) r{i} = Relu(m{i})"
        previous = f"r{i}"
    text += f" logits = MatMul({previous}, head) }}"
    chance = np.random.default_rng(0)
    arrays = {f"w{i}": chance.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for i in range(layers)}
    arrays |= {f"c{i}": np.ones(WIDTH) for i in range(layers)}
    arrays["head"] = chance.normal(size=(WIDTH, CLASSES))
    if fragile:
        arrays["c1"][0] = 3000.0
        arrays["w1"][0] /= 3000.0
    names = ", ".join(f"float[{','.join(map(str, a.shape))}] {n}" for n, a in arrays.items())
    made = Model.from_text(
        text.replace("(float[N", f"(float[N,{WIDTH}] x, {names}, float[N", 1).replace(
            f", float[N,{WIDTH}] x)", ")", 1
        )
    )
    for value in list(made.graph.inputs)[1:]:
        made.graph.inputs.remove(value)
        array = arrays[str(value.name)].astype(np.float32)
        value.const_value = ir.tensor(array, name=value.name)
        made.graph.register_initializer(value)
    return made


def batches(count: int = 8, seed: int = 1) -> list[dict[str, Any]]:
    chance = np.random.default_rng(seed)
    return [{"x": chance.normal(size=(16, WIDTH)).astype(np.float32)} for _ in range(count)]


def slow_metric(predict: Any) -> float:
    """Agreement with the float model, taking its time."""
    from fuseline.tools.quantizer.metrics import predictor

    time.sleep(0.3)
    reference = predictor(model())
    same = [
        (predict(b)["logits"].argmax(-1) == reference(b)["logits"].argmax(-1)).mean() for b in batches(seed=5)
    ]
    return float(np.mean(same))


def tune(output: Path) -> Any:
    from fuseline.tools.quantizer import quantize

    config = {
        "mode": "static",
        "weights": {"smallest": 0},
        "accuracy": {"tolerable-loss": 0.0001, "criterion": "absolute"},
    }
    return quantize(
        model(),
        output,
        config,
        calibration=batches(),
        metric=slow_metric,
        tell=lambda s: print(s, flush=True),
    )


if __name__ == "__main__":
    tune(Path(sys.argv[1]))
