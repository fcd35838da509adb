"""A weight that is no number shows in loss and gradients, through every fusion of the training pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

import fuseline.passes  # noqa: F401
from fuseline.engine import runtime
from fuseline.engine.inputs import generate
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import registry
from fuseline.engine.training.step import TrainingStep
from fuseline.exporters import export
from fuseline.kernels import OPERATORS
from fuseline.tools.campaigns import zoo
from fuseline.tools.golden.cases import build, read

pytestmark = pytest.mark.native

GOLDEN = Path(__file__).parents[2] / "golden"

#: What each architecture is here for.
MODELS = {
    "bert": (
        "FusedAttentionRows",
        "FusedAttentionPackedRows",
        "FusedBiasGelu",
        "FusedLayerNorm",
        "FusedEmbedding",
        "FusedCrossEntropy",
    ),
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


def _makes_native(declared: type[Pass]) -> bool:
    made = set(getattr(declared, "produces", ()))
    return bool(made & set(OPERATORS)) or declared.name.startswith("native-")


def _poisoned(
    model: Model, inputs: dict[str, np.ndarray]
) -> Iterator[tuple[str, Model, dict[str, np.ndarray]]]:
    """The model and its inputs with one weight or input that is no number, one after the other."""
    for name, value in inputs.items():
        if value.dtype == np.float32 and value.size:
            bad = value.copy()
            bad.reshape(-1)[0] = np.nan
            yield name, model, {**inputs, name: bad}
    for name, weight in model.graph.initializers.items():
        content = weight.const_value.numpy() if weight.const_value is not None else np.zeros(0)
        if content.dtype == np.float32 and content.size > 1:
            other = model.clone()
            bad = content.copy()
            bad.reshape(-1)[0] = np.nan
            other.graph.initializers[name].const_value = ir.tensor(bad, name=name)
            yield name, other, inputs


@pytest.mark.parametrize("name", sorted(p.name for p in registry if _makes_native(p)))
def test_no_pass_onto_native_operators_hides_a_nan(name: str) -> None:
    """In every golden case of every such pass: NaN comes out where it came out before.

    A case that cannot be run before (dropout draws anew, a gradient is built) is fed with nothing else.
    """
    pipeline, cases = read(GOLDEN / f"{name.replace('-', '_')}.onnxtxt")
    compared = 0
    for case in [c for c in cases if "EXPECT" in c.directives]:
        before = build(case)
        if "NO-RUN" in case.directives:
            compared += _all_nan(Pipeline.parse(pipeline).run(before).model)
            continue
        for what, model, inputs in _poisoned(before, generate(before, seed=0)):
            after = Pipeline.parse(pipeline).run(model).model
            was, now = (runtime.run(runtime.session(m, threads=1), inputs) for m in (model, after))
            for output, expected in was.items():
                bad = np.isnan(expected)
                assert np.isnan(now[output])[bad].all(), f"{case.name}: {output} where {what} is no number"
                compared += bool(bad.any())
    assert compared


def _all_nan(model: Model) -> int:
    """How many outputs are NaN where every input is; all of them have to be."""
    inputs = generate(model, seed=0)
    fed = {n: np.full_like(v, np.nan) if v.dtype == np.float32 else v for n, v in inputs.items()}
    outputs = runtime.run(runtime.session(model, threads=1), fed)
    floats = {n: v for n, v in outputs.items() if v.dtype == np.float32}
    assert all(np.isnan(v).any() for v in floats.values()), floats
    return len(floats)
