"""What is not trained costs nothing: no gradient below the first trained parameter, nothing kept for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuseline.engine.memory import Simulation, at_sizes
from fuseline.engine.memory.origins import Origin
from fuseline.engine.memory.sizes import sizes_of
from fuseline.engine.model import Model
from fuseline.engine.operators import record
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo
from fuseline.tools.trainer.precision import in_precision

pytestmark = pytest.mark.native
PRECISIONS = ["fp32", "bf16"]


def trained(model: Any, precision: Any = "fp32") -> Model:
    exported = export(model, train=True, check=False)
    return in_precision(Pipeline.resolve("training"), precision).run(exported).model


def freeze(model: Any, *kept: str) -> Any:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in kept))
    return model


def lora() -> Any:
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(
        zoo.build("bert"), peft.LoraConfig(r=4, target_modules=["query", "value"], lora_dropout=0.0)
    )
    return adapted.get_base_model()


def gradients(model: Model) -> list[str]:
    return [n.op_type for n in model.graph if n.domain == "fuseline" and n.op_type.endswith("Grad")]


def saved(model: Model, batch: Any) -> int:
    """Bytes that the forward half keeps for the backward one."""
    sizes = sizes_of(model, {name: tuple(value.shape) for name, value in batch.items()})
    simulation = Simulation(at_sizes(model, sizes))
    return sum(holder.bytes for holder in simulation.holders() if holder.origin is Origin.SAVED)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_is_differentiated_below_a_head(precision: str) -> None:
    model = freeze(zoo.build("bert"), "classifier")
    graph = trained(model, precision)
    assert len(gradients(graph)) == 2, "the loss, and the weight of the classifier"
    batch = zoo.batch(model, 8, 16)
    whole = trained(freeze(zoo.build("bert"), ""), precision)
    assert saved(graph, batch) < 0.1 * saved(whole, batch)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_results_that_only_gradients_read_are_not_written(precision: str) -> None:
    graph = trained(freeze(zoo.build("bert"), "layer.1.", "classifier"), precision)
    for node in graph.graph:
        operator = record(node)
        if operator is not None and operator.declared is not None:
            for value in node.outputs[1:]:
                assert not value.name or value.uses() or value.is_graph_output(), (node.name, value.name)


def test_adapters_take_no_gradient_of_the_weights_that_they_adapt() -> None:
    model = lora()
    graph = trained(model)
    wanted = {name for name, p in model.named_parameters() if p.requires_grad}
    step = TrainingStep(graph, threads=1)
    assert set(step.gradients) == wanted
    assert gradients(graph).count("FusedWeightGrad") == len([n for n in wanted if n.endswith("weight")])
    # Two norms in each of two layers; that of the embeddings is below the first adapter.
    assert gradients(graph).count("FusedLayerNormGrad") == 4


@pytest.mark.parametrize("kept", [("classifier",), ("layer.1.", "classifier"), ("embeddings",), ("lora",)])
def test_gradients_of_what_is_trained_are_torchs(kept: tuple[str, ...]) -> None:
    model = lora() if kept == ("lora",) else freeze(zoo.build("bert"), *kept)
    step = TrainingStep(trained(model), threads=1)
    batch = zoo.batch(model, 4, 11)
    loss = model(**batch).loss
    loss.backward()
    np.testing.assert_allclose(step.run(batch)["loss"], loss.item(), rtol=1e-5)
    expected = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    assert set(step.gradients) == set(expected)
    largest = max(float(np.abs(g).max()) for g in expected.values())
    for name, gradient in expected.items():
        assert np.abs(step.gradients[name] - gradient).max() <= 1e-5 * largest, name
