"""The training step against torch: both modes, accumulation, shapes, state and binding."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.execution.devices import providers_for
from fuseline.engine.execution.plan import Plan, SessionOptions
from fuseline.engine.execution.sessions import SessionCache, cache
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.training.settings import OptimizerSettings
from fuseline.engine.training.step import TrainingStep
from fuseline.passes.interface.keep_outputs import KeepOutputs

GRADIENTS = "complete-layer-norm,complete-cross-entropy,differentiate"
STOCK = f"{GRADIENTS},insert-optimizer{{kernels=false}}"
NATIVE = f"{GRADIENTS},insert-optimizer"
STOCK_SGD = f"{GRADIENTS},insert-optimizer{{kernels=false,kind=sgd}}"
STOCK_ACCUMULATING = f"{GRADIENTS},accumulate-gradients,insert-optimizer{{kernels=false}}"


TEXT = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[N,6] x, int64[N] labels) => (float loss, float[N,3] logits)
{
  h = Gemm<transB=1>(x, w1, b1)
  n = LayerNormalization(h, scale, bias)
  r = Relu(n)
  logits = Gemm<transB=1>(r, w2, b2)
  loss = SoftmaxCrossEntropyLoss(logits, labels)
}
"""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.l1, self.norm, self.l2 = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.l2(torch.relu(self.norm(self.l1(x))))
        return torch.nn.functional.cross_entropy(logits, labels)


NAMES = {
    "l1.weight": "w1",
    "l1.bias": "b1",
    "norm.weight": "scale",
    "norm.bias": "bias",
    "l2.weight": "w2",
    "l2.bias": "b2",
}


def exported(net: Net, pipeline: str, text: str = TEXT) -> Model:
    """The network's graph after `pipeline`."""
    parameters = {NAMES[n]: p.detach().numpy().copy() for n, p in net.named_parameters()}
    declared = ", ".join(
        f"float[{','.join(map(str, a.shape))}] {n} = {{{','.join(map(repr, a.ravel().tolist()))}}}"
        for n, a in parameters.items()
    )
    model = Model.from_text(text.replace("logits)\n", f"logits)\n<{declared}>\n", 1))
    for name, value in NAMES.items():
        model.parameters.add(Parameter(name=name, value=value, shape=parameters[value].shape))
    model.establish(Property.TRAINING)
    return Pipeline.parse(pipeline).run(model).model


def batch(seed: int, size: int = 5) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return {
        "x": torch.from_numpy(rng.standard_normal((size, 6)).astype(np.float32)),
        "labels": torch.from_numpy(rng.integers(0, 3, size)),
    }


@pytest.fixture
def net() -> Net:
    torch.set_num_threads(1)
    return Net()


def close(got: object, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(got, expected.detach().numpy(), rtol=2e-5, atol=1e-6)


def test_torch_mode_gives_torchs_gradients_at_any_batch_size(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    for size in (5, 1, 9):
        net.zero_grad()
        loss = net(**batch(size, size))
        loss.backward()
        close(step.run(batch(size, size))["loss"], loss)
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            close(step.gradients[name], parameter.grad)


def test_bound_tensors_are_read_where_they_are(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    step.bind(dict(net.named_parameters()))
    with torch.no_grad():
        net.l1.weight.mul_(0.5)
    close(step.run(batch(0))["loss"], net(**batch(0)))
    assert np.shares_memory(step.parameters["l1.weight"], net.l1.weight.detach().numpy())


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_native_mode_follows_torch(net: Net, kind: str) -> None:
    settings = OptimizerSettings(learning_rate=1e-2, weight_decay=0.1, max_norm=0.5, momentum=0.9)
    step = TrainingStep(exported(net, STOCK if kind == "adamw" else STOCK_SGD), threads=1, settings=settings)
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
        if kind == "adamw"
        else torch.optim.SGD(net.parameters(), lr=1e-2, weight_decay=0.1, momentum=0.9)
    )
    for i in range(8):
        optimizer.zero_grad()
        loss = net(**batch(i))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        got = step.run(batch(i), ["loss", "optimizer.gradient_norm"])
        close(got["loss"], loss)
        close(got["optimizer.gradient_norm"][0], norm)
    for name, parameter in net.named_parameters():
        close(step.parameters[name], parameter)


def test_accumulation_equals_one_large_batch(net: Net) -> None:
    one = TrainingStep(exported(net, STOCK), threads=1)
    parts = TrainingStep(exported(net, STOCK_ACCUMULATING), threads=1)
    for i in range(2):
        whole = batch(i, 8)
        one.run(whole)
        for rows in (slice(0, 4), slice(4, 8)):
            parts.run({k: v[rows] for k, v in whole.items()}, loss_scale=0.5, apply=rows.stop == 8)
    for name, array in one.parameters.items():
        np.testing.assert_allclose(parts.parameters[name], array, atol=1e-6)


def test_withholding_an_update_needs_accumulation(net: Net) -> None:
    step = TrainingStep(exported(net, STOCK), threads=1)
    with pytest.raises(FuselineError, match="does not accumulate"):
        step.run(batch(0), apply=False)


def test_evaluation_uses_current_weights_and_needs_no_labels_for_logits(net: Net) -> None:
    step = TrainingStep(exported(net, STOCK), threads=1)
    step.run(batch(0))
    net.load_state_dict({k: torch.from_numpy(v) for k, v in step.state_dict().items()})
    close(step.evaluate(batch(1))["loss"], net(**batch(1)))
    logits = step.evaluate({"x": batch(1)["x"]}, ["logits"])["logits"]
    assert logits.shape == (5, 3)


def test_state_round_trips(net: Net) -> None:
    first = TrainingStep(exported(net, STOCK), threads=1)
    for i in range(3):
        first.run(batch(i))
    second = TrainingStep(exported(net, STOCK), threads=1)
    second.load_state_dict(first.state_dict())
    second.load_optimizer_state(first.optimizer_state())
    assert first.run(batch(7))["loss"] == second.run(batch(7))["loss"]
    for name, array in first.parameters.items():
        np.testing.assert_array_equal(second.parameters[name], array)


def test_what_is_wrong_is_named(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    with pytest.raises(ModelError, match="the batch has no 'labels'"):
        step.run({"x": batch(0)["x"]})
    with pytest.raises(ModelError, match=r"no parameter 'l3.weight'"):
        step.load_state_dict({"l3.weight": np.zeros(3)})
    with pytest.raises(ModelError, match=r"'l1.bias' has shape \(2,\), but the graph was made for \(8,\)"):
        step.load_state_dict({"l1.bias": np.zeros(2)})
    with pytest.raises(FuselineError, match="no gradients yet"):
        TrainingStep(exported(net, "complete-layer-norm"))


def test_sessions_are_shared_and_bounded(net: Net) -> None:
    cache.clear()
    for _ in range(3):
        TrainingStep(exported(net, GRADIENTS), threads=1)
    assert len(cache) == 1
    small = SessionCache(capacity=1)
    for pipeline in (GRADIENTS, STOCK):
        fed = Pipeline.parse("feed-parameters").run(exported(net, pipeline)).model
        small.get(Plan(fed, SessionOptions("none", threads=1)))
    assert len(small) == 1


def test_a_device_that_is_not_there_is_refused(net: Net) -> None:
    with pytest.raises(FuselineError, match="has no CUDAExecutionProvider"):
        TrainingStep(exported(net, GRADIENTS), device="cuda")


def test_operators_for_the_cpu_are_refused_elsewhere(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(ModelError, match=r"exist for the CPU only: Fused"):
        providers_for("cuda", exported(net, NATIVE))
    stock = exported(net, STOCK)
    assert providers_for("cuda", stock) == ("CUDAExecutionProvider", "CPUExecutionProvider")


def test_what_is_not_asked_for_is_not_computed(net: Net) -> None:
    text = TEXT.replace("logits = Gemm", "z = Gemm").replace(
        "(logits, labels)\n", "(z, labels)\n  logits = Sigmoid(z)\n"
    )
    whole = exported(net, STOCK, text)
    assert any(node.op_type == "Sigmoid" for node in whole.graph)
    pruned = Pipeline.of(KeepOutputs(names=("loss", "optimizer.applied"))).run(whole).model
    assert not any(node.op_type == "Sigmoid" for node in pruned.graph)
    step = TrainingStep(whole, threads=1)
    x, labels = np.ones((2, 6), np.float32), np.array([0, 1])
    assert set(step.run({"x": x, "labels": labels}, ["loss", "logits"])) == {"loss", "logits"}
    with pytest.raises(ModelError, match="no output 'logit'; it has"):
        step.run({"x": x, "labels": labels}, ["logit"])


def state_of(step: TrainingStep) -> dict[str, Any]:
    return {
        **step.state_dict(),
        **{f"{n}.{k}": v for n, m in step.optimizer_state()["state"].items() for k, v in m.items()},
    }


def unchanged(step: TrainingStep, before: dict[str, Any]) -> None:
    for name, array in state_of(step).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_state_is_loaded_as_a_whole_or_not_at_all(net: Net) -> None:
    step = TrainingStep(exported(net, STOCK), threads=1)
    before, zeros = state_of(step), {n: np.zeros_like(v) for n, v in step.state_dict().items()}
    missing = {n: v for n, v in zeros.items() if n != "l2.bias"}
    for state, message in (
        (missing, "the state has no 'l2.bias'"),
        ({**zeros, "l3.bias": np.zeros(3)}, "the model has no parameter 'l3.bias'"),
        ({**zeros, "l2.bias": np.zeros(1, np.float32)}, "'l2.bias' has shape"),
        ({**zeros, "l2.bias": None}, "'l2.bias' is a NoneType"),
    ):
        with pytest.raises(ModelError, match=message):
            step.load_state_dict(state)
        unchanged(step, before)
    step.load_state_dict(missing, strict=False)
    np.testing.assert_array_equal(step.state_dict()["l2.bias"], before["l2.bias"])
    assert not step.state_dict()["l1.weight"].any()


def test_an_optimizers_state_is_loaded_as_a_whole_or_not_at_all(net: Net) -> None:
    step = TrainingStep(exported(net, STOCK), threads=1)
    step.run(batch(0))
    good, before = step.optimizer_state(), state_of(step)
    moments = {k: np.zeros_like(v) for k, v in good["state"]["l2.bias"].items()}
    for saved, message in (
        ({"step": 1.5, "state": good["state"]}, "a whole number of steps, not 1.5"),
        ({"step": 3, "state": {n: s for n, s in good["state"].items() if n != "l2.bias"}}, "of 'l2.bias'"),
        ({"step": 3, "state": {**good["state"], "l3.bias": moments}}, "no parameter 'l3.bias'"),
        ({"step": 3, "state": {**good["state"], "l2.bias": {**moments, "exp_avg": np.zeros(1)}}}, "shape"),
    ):
        with pytest.raises(ModelError, match=message):
            step.load_optimizer_state(saved)
        unchanged(step, before)
        assert step.optimizer_state()["step"] == 1


def test_memory_that_cannot_be_shared_is_refused(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    read_only = np.zeros(3, np.float32)
    read_only.flags.writeable = False
    for tensor, message in (
        (torch.zeros(3, dtype=torch.float64), "holds float64"),
        (torch.zeros(6)[::2], "not one piece of memory"),
        (read_only, "read-only"),
        (torch.zeros(1), "has shape"),
        (None, "neither an array nor a tensor"),
    ):
        with pytest.raises(ModelError, match=message):
            step.bind({"l2.bias": tensor})


def test_a_batch_is_taken_as_it_is_or_refused(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    given = batch(0)
    for change, message in (
        (
            {"labels": np.array([0.0, 1.0, 2.0, 1.7, 0.0])},
            "'labels' holds float64, and the graph takes int64",
        ),
        ({"labels": np.array(list("01210"))}, "'labels'"),
        ({"mask": np.ones(5)}, "no input 'mask'; it takes labels, x"),
    ):
        with pytest.raises(ModelError, match=message):
            step.run({**given, **change})
        with pytest.raises(ModelError, match=message):
            step.evaluate({**given, **change}, ["loss"])
    assert step.run({**given, "labels": given["labels"].to(torch.int32)})["loss"].shape == ()


def test_a_batch_in_pieces_is_there_until_it_is_read(net: Net) -> None:
    text = TEXT.replace("float[N,6] x", "float[N,6] x, float[N,6] y, float[N,6] z")
    text = text.replace("h = Gemm<transB=1>(x,", "s = Mul(y, z)\n  t = Add(x, s)\n  h = Gemm<transB=1>(t,")
    step = TrainingStep(exported(net, GRADIENTS, text), threads=1)
    for size in (2, 300):
        whole = batch(0, size)
        whole |= {"y": whole["x"] * 2, "z": whole["x"] + 3}
        pieces = {n: v.repeat_interleave(2, -1)[..., ::2] if n != "labels" else v for n, v in whole.items()}
        assert step.run(pieces)["loss"] == step.run(whole)["loss"]


def test_one_step_serves_many_threads(net: Net) -> None:
    step = TrainingStep(exported(net, GRADIENTS), threads=1)
    batches = [batch(seed, size) for seed, size in enumerate((2, 5, 3, 7, 4, 6))]
    expected = [float(net(**b)) for b in batches]
    found: list[list[float]] = [[] for _ in batches]

    def work(index: int) -> None:
        for _ in range(30):
            found[index].append(float(step.run(batches[index])["loss"]))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for losses, loss in zip(found, expected, strict=True):
        assert losses == pytest.approx([loss] * 30, rel=1e-5)
