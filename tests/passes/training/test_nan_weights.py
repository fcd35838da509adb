"""A weight that is no number shows in loss and gradients, through every fusion of the training pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo

pytestmark = pytest.mark.native

#: What each architecture is here for.
MODELS = {
    "bert": ("FusedAttention", "FusedBiasGelu", "FusedLayerNorm", "FusedEmbedding", "FusedCrossEntropy"),
    "gpt2": ("FusedAttentionPacked", "FusedBiasGeluTanh", "FusedWeightGrad"),
    "llama": ("FusedRmsNorm", "FusedRotary", "FusedSwiGlu"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_nan_weight_shows_in_loss_and_gradients(name: str) -> None:
    torch.set_num_threads(1)
    model = zoo.build(name)
    graph = Pipeline.resolve("training").run(export(model, train=True, check=False)).model
    kinds = {node.op_type for node in graph.graph}
    assert kinds.issuperset(MODELS[name])
    step = TrainingStep(graph, threads=1)
    healthy = {key: np.array(value) for key, value in step.state_dict().items()}
    inputs = zoo.batch(model, batch=2, seq=8, seed=0)
    assert np.isfinite(step.run(inputs)["loss"])
    for key, parameter in model.named_parameters():
        poisoned = np.array(healthy[key])
        poisoned.reshape(len(poisoned), -1)[:, 0] = np.nan
        tied = {other for other, value in healthy.items() if np.array_equal(value, healthy[key])}
        step.load_state_dict({**healthy, **dict.fromkeys(tied, poisoned)})
        with torch.no_grad():
            kept = parameter.detach().clone()
            parameter.copy_(torch.from_numpy(poisoned))
        model.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        with torch.no_grad():
            parameter.copy_(kept)
        assert np.isnan(step.run(inputs)["loss"]) == np.isnan(loss.item()), key
        gradients = step.gradients
        for other, value in model.named_parameters():
            if value.grad is not None and bool(value.grad.isnan().all()):
                assert np.isnan(gradients[other]).all(), (key, other)
