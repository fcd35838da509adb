"""The optimizer of standard operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep

TEXT = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[N] x) => (float loss) <float scale = {2}> { y = Mul(x, scale) loss = ReduceMean<keepdims = 0>(y) }
"""


def test_a_scalar_parameter_stays_a_scalar() -> None:
    model = Model.from_text(TEXT)
    model.parameters.add(Parameter("scale", "scale", (), "float32", trainable=True))
    model.facts.training = replace(model.facts.training, loss="loss")
    made = Pipeline.parse("differentiate,insert-optimizer{kernels=false}").run(model).model
    step = TrainingStep(made)
    step.run({"x": np.ones(3, np.float32)})
    assert step.parameters["scale"].shape == ()
    assert step.parameters["scale"] < 2
