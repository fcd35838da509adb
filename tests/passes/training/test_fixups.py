"""Every fix-up on one small graph: afterwards ONNX Runtime differentiates it, and the gradient is torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import run, session
from fuseline.engine.training.gradients import build_gradients

Function = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    """`body` computes y from the trainable x; `torch` does the same; `before` tells how it fails unmended."""

    passes: str
    shape: tuple[int, ...]
    body: str
    torch: Function
    opset: int = 18
    before: str = "refused"

    def model(self) -> Model:
        dims = ",".join(map(str, self.shape))
        text = f"""<ir_version: 8, opset_import: ["" : {self.opset}, "com.microsoft" : 1]>
        g () => (float loss) <float[{dims}] x = {{{_numbers(self.input())}}}>
        {{ {self.body}
           weight = Constant<value = float[1] {{0.37}}>()
           flat = Constant<value_ints = [-1]>()
           line = Reshape(y, flat)
           bent = Sin(line)
           loss = ReduceSum<keepdims=0>(bent) }}"""
        model = Model.from_text(text.replace("weight = Constant<value = float[1] {0.37}>()", ""))
        model.parameters.add(Parameter(name="x", value="x", shape=self.shape))
        return model

    def input(self) -> np.ndarray:
        values = np.random.default_rng(7).uniform(-2, 2, self.shape).astype(np.float32)
        values.reshape(-1)[0] = 0.0  # corners count
        return values

    def expected(self) -> np.ndarray:
        x = torch.from_numpy(self.input()).requires_grad_()
        self.torch(x).sin().sum().backward()
        assert x.grad is not None
        return x.grad.numpy()


def _numbers(array: np.ndarray) -> str:
    return ",".join(map(repr, array.reshape(-1).tolist()))


def _weights(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _const(name: str, array: np.ndarray) -> str:
    kind = "float" if array.dtype == np.float32 else "int64"
    dims = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
    return f"{name} = Constant<value = {kind}{dims} {{{_numbers(array)}}}>()\n"


def _tensor(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(_weights(*shape, seed=seed))


ACTIVATIONS: dict[str, tuple[str, Function]] = {
    "elu": ("Elu<alpha=1.5>(x)", lambda x: F.elu(x, 1.5)),
    "selu": ("Selu(x)", F.selu),
    "celu": ("Celu<alpha=0.7>(x)", lambda x: F.celu(x, 0.7)),
    "hard_sigmoid": ("HardSigmoid<alpha=0.25>(x)", lambda x: (x * 0.25 + 0.5).clamp(0, 1)),
    "hard_swish": ("HardSwish(x)", F.hardswish),
    "mish": ("Mish(x)", F.mish),
    "thresholded_relu": ("ThresholdedRelu<alpha=0.5>(x)", lambda x: F.threshold(x, 0.5, 0.0)),
    "shrink": ("Shrink<lambd=0.5, bias=0.5>(x)", lambda x: F.softshrink(x, 0.5)),
}

DEFINED: dict[str, Function] = {
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Tan": lambda x: torch.tan(x),
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Asinh": torch.asinh,
    "Floor": torch.floor,
    "Sign": torch.sign,
}

REDUCTIONS: dict[str, Function] = {
    "ReduceSumSquare": lambda x: x.square().sum(1),
    "ReduceL1": lambda x: x.abs().sum(1),
    "ReduceMax": lambda x: x.amax(1),
    "ReduceMin": lambda x: x.amin(1),
}

CASES: dict[str, Case] = {
    **{
        name: Case("decompose-activations", (3, 5), f"y = {text}", function)
        for name, (text, function) in ACTIVATIONS.items()
    },
    **{
        name: Case("remove-unused", (3, 4), f"y = {name}(x)", function, before="works")
        for name, function in DEFINED.items()
    },
    **{
        name: Case(
            "decompose-reductions,separate-repeated-inputs",
            (3, 4),
            f"axes = Constant<value_ints = [1]>()\n y = {name}<keepdims=0>(x, axes)",
            function,
        )
        for name, function in REDUCTIONS.items()
    },
    "prelu": Case(
        "decompose-activations",
        (2, 3, 4),
        _const("s", _weights(3, 1)) + "y = PRelu(x, s)",
        lambda x: torch.where(x > 0, x, x * _tensor(3, 1)),
    ),
    "sum": Case(
        "decompose-sums", (2, 3), _const("c", _weights(3)) + "y = Sum(x, c, c)", lambda x: x + 2 * _tensor(3)
    ),
    "mean": Case(
        "decompose-sums", (2, 3), _const("c", _weights(3)) + "y = Mean(x, c)", lambda x: (x + _tensor(3)) / 2
    ),
    "same_twice": Case("separate-repeated-inputs", (3, 3), "y = Mul(x, x)", lambda x: x * x),
    "pow_2": Case(
        "resolve-pow,separate-repeated-inputs",
        (4,),
        "e = Constant<value_float = 2.0>()\n y = Pow(x, e)",
        torch.square,
        before="any",
    ),
    "pow_3": Case(
        "resolve-pow,separate-repeated-inputs",
        (4,),
        "e = Constant<value_float = 3.0>()\n y = Pow(x, e)",
        lambda x: x**3,
        before="any",
    ),
    "pow_0": Case(
        "infer-shapes,resolve-pow",
        (4,),
        "e = Constant<value_float = 0.0>()\n y = Pow(x, e)",
        lambda x: x**0,
        before="wrong",
    ),
    "pow_some_0": Case(
        "infer-shapes,resolve-pow",
        (2, 4),
        "e = Constant<value_floats = [0.0, 1.0, 2.0, 3.0]>()\n y = Pow(x, e)",
        lambda x: x ** torch.arange(4.0),
        before="wrong",
    ),
    "norm_of_all": Case(
        "infer-shapes,decompose-reductions", (3, 4), "y = ReduceL2<keepdims=0>(x)", lambda x: x.norm()
    ),
    "pow_base": Case(
        "infer-shapes,resolve-pow",
        (4,),
        "e = Constant<value_float = 2.5>()\n y = Pow(e, x)",
        lambda x: 2.5**x,
    ),
    "where": Case(
        "infer-shapes,expand-where",
        (1, 3),
        "z = Constant<value_floats = [0.0]>()\n c = Constant<value = bool[2,1] {1,0}>()\n y = Where(c, x, z)",
        lambda x: torch.where(torch.tensor([[True], [False]]), x, torch.zeros(1)),
        before="wrong",
    ),
    "layer_norm": Case(
        "infer-shapes,complete-layer-norm",
        (3, 4),
        _const("s", _weights(4)) + "y = LayerNormalization(x, s)",
        lambda x: F.layer_norm(x, (4,), _tensor(4)),
    ),
    "cross_entropy": Case(
        "complete-cross-entropy",
        (3, 4),
        "l = Constant<value_ints = [1, -100, 3]>()\n y = SoftmaxCrossEntropyLoss<ignore_index=-100>(x, l)",
        lambda x: F.cross_entropy(x, torch.tensor([1, -100, 3])),
    ),
    "nll_loss": Case(
        "resolve-nll-loss",
        (3, 4),
        "l = Constant<value_ints = [1, -100, 3]>()\n y = NegativeLogLikelihoodLoss<ignore_index=-100>(x, l)",
        lambda x: F.nll_loss(x, torch.tensor([1, -100, 3])),
    ),
    "cast_like": Case("resolve-cast-like", (3,), "y = CastLike(x, x)", lambda x: x * 1),
    "split_sequence": Case(
        "lift-constants,infer-shapes,resolve-split-sequence,slice-unused-splits",
        (6,),
        "p = Constant<value_ints = [2, 4]>()\n i = Constant<value_int = 1>()\n s = SplitToSequence(x, p)\n"
        "y = SequenceAt(s, i)",
        lambda x: x[2:],
    ),
    "split_unused": Case(
        "slice-unused-splits",
        (6,),
        "p = Constant<value_ints = [2, 4]>()\n a, y = Split(x, p)",
        lambda x: x[2:],
        before="wrong",
    ),
    "scatter_add": Case(
        "separate-scatter",
        (4,),
        "i = Constant<value = int64[2,1] {1,2}>()\n u = Constant<value_floats = [1.0, 2.0]>()\n"
        'y = ScatterND<reduction="add">(x, i, u)',
        lambda x: x + torch.tensor([0.0, 1.0, 2.0, 0.0]),
        before="wrong",
    ),
    "einsum": Case(
        "resolve-einsum",
        (2, 3, 4),
        _const("c", _weights(5, 2, 4)) + 'y = Einsum<equation="bij,kbj->bki">(x, c)',
        lambda x: torch.einsum("bij,kbj->bki", x, _tensor(5, 2, 4)),
    ),
    "einsum_outer": Case(
        "resolve-einsum",
        (3,),
        _const("c", _weights(2)) + 'y = Einsum<equation="i,j->ij">(x, c)',
        lambda x: torch.outer(x, _tensor(2)),
    ),
    "einsum_one": Case(
        "resolve-einsum",
        (2, 3, 4),
        'y = Einsum<equation="abc->ca">(x)',
        lambda x: torch.einsum("abc->ca", x),
    ),
    "vector_matmul": Case(
        "infer-shapes,widen-matmul",
        (3,),
        _const("c", _weights(3, 4)) + "y = MatMul(x, c)",
        lambda x: x @ _tensor(3, 4),
        before="any",
    ),
    "cumulative_sum": Case(
        "resolve-cumulative-sum",
        (3, 4),
        "a = Constant<value_int = 1>()\n y = CumSum<exclusive=1, reverse=1>(x, a)",
        lambda x: x.flip(1).cumsum(1).flip(1) - x,
        before="any",
    ),
    "batch_norm_evaluation": Case(
        "infer-shapes,resolve-batch-norm",
        (2, 3, 4),
        _const("s", _weights(3)) + _const("v", _weights(3) ** 2) + "y = BatchNormalization(x, s, s, s, v)",
        lambda x: F.batch_norm(x, _tensor(3), _tensor(3) ** 2, _tensor(3), _tensor(3)),
    ),
    "batch_norm_training": Case(
        "infer-shapes,resolve-batch-norm",
        (2, 3, 4),
        _const("s", _weights(3))
        + _const("v", _weights(3) ** 2)
        + _const("b", _weights(3, seed=2))
        + _const("a", _weights(3, seed=3))
        + "y, m, r = BatchNormalization<training_mode=1>(x, s, b, a, v)",
        lambda x: F.batch_norm(x, None, None, _tensor(3), _tensor(3, seed=2), training=True),
    ),
    "instance_norm": Case(
        "infer-shapes,decompose-normalization",
        (2, 3, 4),
        _const("s", _weights(3)) + "y = InstanceNormalization(x, s, s)",
        lambda x: F.instance_norm(x, weight=_tensor(3), bias=_tensor(3)),
    ),
    "group_norm": Case(
        "infer-shapes,decompose-normalization",
        (2, 4, 5),
        _const("s", _weights(4)) + "y = GroupNormalization<num_groups=2>(x, s, s)",
        lambda x: F.group_norm(x, 2, _tensor(4), _tensor(4)),
        opset=21,
    ),
    "lp_normalization": Case(
        "infer-shapes,decompose-normalization",
        (3, 4),
        "y = LpNormalization(x)",
        lambda x: F.normalize(x, dim=-1),
    ),
    "grouped_conv": Case(
        "infer-shapes,lift-grouped-convolution",
        (2, 4, 7),
        _const("w", _weights(4, 2, 3)) + "y = Conv<group=2, pads=[1,1]>(x, w)",
        lambda x: F.conv1d(x, _tensor(4, 2, 3), padding=1, groups=2),
        before="unsafe",
    ),
    "depth_to_space": Case(
        "rearrange-space",
        (1, 8, 2, 3),
        'y = DepthToSpace<blocksize=2, mode="CRD">(x)',
        lambda x: F.pixel_shuffle(x, 2),
    ),
    "space_to_depth": Case(
        "rearrange-space",
        (1, 2, 4, 6),
        "y = SpaceToDepth<blocksize=2>(x)",
        lambda x: F.pixel_unshuffle(x, 2).reshape(1, 2, 4, 2, 3).transpose(1, 2).reshape(1, 8, 2, 3),
    ),
    "resize_to_its_own_size": Case(
        "infer-shapes,resolve-resize",
        (1, 2, 3, 5),
        'd = Constant<value_ints = [1, 2, 3, 5]>()\ny = Resize<mode="linear">(x, , , d)',
        lambda x: x * 1,
    ),
    "tanh_gelu": Case(
        "name-tanh-gelu",
        (5,),
        'y = Gelu<approximate="tanh">(x)',
        lambda x: F.gelu(x, approximate="tanh"),
        opset=20,
        before="wrong",
    ),
    "identity_transpose": Case(
        "remove-identity-transposes", (3, 4), "y = Transpose<perm=[0,1]>(x)", lambda x: x * 1, before="any"
    ),
}


def gradient(model: Model) -> np.ndarray:
    return run(session(build_gradients(model), threads=1), {"loss_grad": np.float32(1)})["x_grad"]


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_torchs(name: str) -> None:
    case = CASES[name]
    result = Pipeline.parse(case.passes).run(case.model())
    np.testing.assert_allclose(gradient(result.model), case.expected(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_it_was_needed_and_says_so(name: str) -> None:
    """Without the pass the gradient cannot be built, or is wrong: a fix-up that is not needed should go."""
    case = CASES[name]
    if case.before in ("works", "any", "unsafe"):
        return
    if case.before == "refused":
        with pytest.raises(FuselineError):
            gradient(case.model())
        return
    try:
        got = gradient(case.model())
    except FuselineError:
        return
    assert got.shape != case.expected().shape or not np.allclose(got, case.expected(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_running_again_changes_nothing(name: str) -> None:
    case = CASES[name]
    pipeline = Pipeline.parse(case.passes)
    again = pipeline.run(pipeline.run(case.model()).model)
    changed = [
        r.name for r in again.records if r.changes and r.name not in ("infer-shapes", "lift-constants")
    ]
    assert not changed


def test_idle_dropout_is_removed() -> None:
    body = "r = Constant<value_float = 0.5>()\n t = Constant<value = bool {0}>()\n y = Dropout(x, r, t)"
    case = Case("complete-dropout", (4,), body, lambda x: x * 1)
    model = Pipeline.parse(case.passes).run(case.model()).model
    assert "Dropout" not in {n.op_type for n in model.nodes()}
    np.testing.assert_allclose(gradient(model), case.expected(), rtol=1e-5)


def test_active_dropout_shares_its_mask_with_the_gradient() -> None:
    body = "r = Constant<value_float = 0.5>()\n t = Constant<value = bool {1}>()\n y = Dropout(x, r, t)"
    case = Case("complete-dropout", (200,), body, lambda x: x * 1)
    model = Pipeline.parse(case.passes).run(case.model()).model
    got, x = gradient(model), case.input()
    kept = got != 0
    assert 60 < kept.sum() < 140
    np.testing.assert_allclose(got[kept], 2 * np.cos(2 * x)[kept], rtol=1e-3, atol=1e-4)
