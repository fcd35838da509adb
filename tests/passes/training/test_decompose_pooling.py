"""Loss and gradients of pooling are torch's, whatever the windows are and whichever sizes are free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.training.step import TrainingStep

SIZES = {1: (9,), 2: (9, 7), 3: (5, 7, 6)}


def differences(node: str, axes: int, free: bool, compute: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Of loss and gradient, relative; the batch is free in any case."""
    names = [f"D{i}" if free else str(size) for i, size in enumerate(SIZES[axes])]
    ones = ",".join("1" * axes)
    model = Model.from_text(f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[B,4,{",".join(names)}] x) => (float loss) <float[4,{ones}] w = {{1.5, -0.7, 0.3, 1}}> {{
      h = Mul(x, w)
      y = {node}(h)
      z = Mul(y, y)
      loss = ReduceSum<keepdims=0>(z) }}""")
    model.parameters.add(Parameter("w", "w", (4, *[1] * axes), "float32"))
    x = torch.randn(3, 4, *SIZES[axes], generator=torch.Generator().manual_seed(axes))
    w = torch.tensor([1.5, -0.7, 0.3, 1]).view(4, *[1] * axes).requires_grad_()
    loss = compute(x * w).square().sum()
    loss.backward()
    assert w.grad is not None
    step = TrainingStep(Pipeline.resolve("training-stock").run(model).model, threads=1)
    found = float(step.run({"x": x.numpy()})["loss"])
    gradient = np.abs(step.gradients["w"] - w.grad.numpy()).max() / w.grad.abs().max().item()
    return abs(found / loss.item() - 1), float(gradient)


@dataclass(frozen=True)
class Windows:
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: int = 1

    def attributes(self, axes: int) -> str:
        kernel, stride, padding = (list(sizes[:axes]) for sizes in (self.kernel, self.stride, self.padding))
        text = f"kernel_shape={kernel}, strides={stride}, pads={padding + padding}"
        return text + f", dilations={[self.dilation] * axes}" if self.dilation > 1 else text


SIDE_BY_SIDE = Windows((2, 2, 2), (2, 2, 2), (0, 0, 0))
OVERLAPPING = Windows((3, 3, 3), (2, 2, 2), (1, 1, 1))
UNEQUAL = Windows((3, 2, 2), (1, 2, 3), (1, 0, 1))
DILATED = Windows((2, 2, 2), (2, 1, 1), (0, 0, 0), dilation=2)
FREE = pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
CEIL = pytest.mark.parametrize("ceil", [0, 1], ids=["floor", "ceil"])
AXES = pytest.mark.parametrize("axes", SIZES)


@FREE
@CEIL
@AXES
@pytest.mark.parametrize("padding", [0, 1], ids=["inside", "with-padding"])
@pytest.mark.parametrize("windows", [SIDE_BY_SIDE, OVERLAPPING, UNEQUAL])
def test_average(windows: Windows, axes: int, ceil: int, padding: int, free: bool) -> None:
    node = f"AveragePool<{windows.attributes(axes)}, ceil_mode={ceil}, count_include_pad={padding}>"
    pool = getattr(F, f"avg_pool{axes}d")
    options = [list(sizes[:axes]) for sizes in (windows.kernel, windows.stride, windows.padding)]
    found = differences(node, axes, free, lambda x: pool(x, *options, bool(ceil), bool(padding)))
    assert max(found) <= 1e-5


@FREE
@CEIL
@AXES
@pytest.mark.parametrize("windows", [SIDE_BY_SIDE, OVERLAPPING, UNEQUAL, DILATED])
def test_largest(windows: Windows, axes: int, ceil: int, free: bool) -> None:
    node = f"MaxPool<{windows.attributes(axes)}, ceil_mode={ceil}>"
    pool = getattr(F, f"max_pool{axes}d")
    options = [list(sizes[:axes]) for sizes in (windows.kernel, windows.stride, windows.padding)]
    found = differences(node, axes, free, lambda x: pool(x, *options, windows.dilation, bool(ceil)))
    assert max(found) <= 1e-5


@FREE
@pytest.mark.parametrize("stride", [1, 2])
def test_dilated_average(stride: int, free: bool) -> None:
    """torch has none; it is a convolution of each channel with equal weights."""
    node = f"AveragePool<kernel_shape=[3,2], dilations=[2,3], strides=[{stride},1]>"
    weight = torch.full((4, 1, 3, 2), 1 / 6)
    found = differences(
        node, 2, free, lambda x: F.conv2d(x, weight, stride=(stride, 1), dilation=(2, 3), groups=4)
    )
    assert max(found) <= 1e-5


@pytest.mark.parametrize("end", ["UPPER", "LOWER"])
@pytest.mark.parametrize(("free", "stride"), [(False, 1), (False, 2), (False, 3), (True, 1)])
def test_automatic_padding(free: bool, stride: int, end: str) -> None:
    node = f'AveragePool<kernel_shape=[4,4], strides=[{stride},{stride}], auto_pad="SAME_{end}">'

    def compute(x: Tensor) -> Tensor:
        sides: list[int] = []
        for size in reversed(x.shape[2:]):
            total = max((-(-size // stride) - 1) * stride + 4 - size, 0)
            less, more = total // 2, total - total // 2
            sides += [less, more] if end == "UPPER" else [more, less]
        mean, share = (F.avg_pool2d(F.pad(v, sides), 4, stride) for v in (x, torch.ones_like(x)))
        return mean / share

    assert max(differences(node, 2, free, compute)) <= 1e-5


def test_padding_that_cannot_be_told_is_refused() -> None:
    with pytest.raises(Exception, match="AveragePool"):
        differences('AveragePool<kernel_shape=[4,4], strides=[2,2], auto_pad="SAME_UPPER">', 2, True, F.relu)


@FREE
@pytest.mark.parametrize("size", [1, 3])
def test_response_norm(size: int, free: bool) -> None:
    node = f"LRN<size={size}, alpha=0.5, beta=0.6, bias=1.5>"
    found = differences(node, 2, free, lambda x: F.local_response_norm(x, size, 0.5, 0.6, 1.5))
    assert max(found) <= 1e-5


def test_the_first_of_equal_maxima_learns() -> None:
    """As in torch: row by row."""
    model = Model.from_text("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[B,1,H,W] x) => (float loss) <float[1,1,2,2] w = {0, 0, 0, 0}> {
      h = Add(x, w)
      y = MaxPool<kernel_shape=[2,2]>(h)
      loss = ReduceSum<keepdims=0>(y) }""")
    model.parameters.add(Parameter("w", "w", (1, 1, 2, 2), "float32"))
    step = TrainingStep(Pipeline.resolve("training-stock").run(model).model, threads=1)
    for image in ([[1, 1], [1, 1]], [[0, 1], [1, 0]], [[0, 0], [1, 1]]):
        x = torch.tensor(image, dtype=torch.float32)[None, None].requires_grad_()
        F.max_pool2d(x, 2).sum().backward()
        step.run({"x": x.detach().numpy()})
        assert x.grad is not None
        np.testing.assert_array_equal(step.gradients["w"], x.grad.numpy())
