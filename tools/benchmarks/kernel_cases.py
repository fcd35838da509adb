"""What the kernel benchmark measures: for each kernel ours, ONNX Runtime's and torch's way of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from fuseline.kernels.operator import Array
from fuseline.tools.benchmarks.graphs import MICROSOFT, Node, graph, native, stock

__all__ = ["Case", "backward", "normal", "row_cases"]

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One comparison; ``bytes`` is the memory traffic of a kernel that is bound by it, 0 otherwise."""

    name: str
    variants: dict[str, Run]
    bytes: int = 0
    flops: int = 0


def normal(*shape: int) -> Array:
    values: Array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return values


def _tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(a).requires_grad_(a.dtype == np.float32) for a in arrays]


def backward(function: Callable[..., torch.Tensor], arrays: list[Array], dy: Array) -> Run:
    tensors = _tensors(*arrays)
    wanted = [t for t in tensors if t.requires_grad]
    upstream = torch.from_numpy(dy)
    return lambda: torch.autograd.grad(function(*tensors), wanted, upstream)


def _embedding(tokens: int, vocabulary: int, width: int, threads: int) -> Case:
    weight, dy = normal(vocabulary, width), normal(tokens, width)
    ids = np.random.default_rng(1).integers(0, vocabulary, tokens)
    feeds = {"dy": dy, "ids": ids}
    ours = [native("FusedEmbeddingGrad", ["dy", "ids", "weight", "state"], ["dweight"])]
    theirs = [stock("GatherGrad", ["shape", "ids", "dy"], ["dweight"], MICROSOFT, axis=0)]
    shape = np.array(weight.shape)
    index, table, upstream = torch.from_numpy(ids), torch.from_numpy(weight), torch.from_numpy(dy)

    def torch_way() -> object:
        return torch.ops.aten.embedding_dense_backward(upstream, index, table.shape[0], -1, False)

    return Case(
        f"embedding gradient {tokens} of {vocabulary}×{width}",
        {
            "fuseline": graph(
                ours, {**feeds, "weight": weight, "state": np.array([-1])}, ["dweight"], threads
            ),
            "onnxruntime": graph(theirs, {**feeds, "shape": shape}, ["dweight"], threads),
            "torch": torch_way,
        },
        bytes=weight.nbytes + 2 * dy.nbytes,
    )


def _cross_entropy(rows: int, classes: int, labelled: float, threads: int) -> Case:
    rng = np.random.default_rng(2)
    logits, labels = normal(rows, classes), rng.integers(0, classes, rows)
    labels[rng.random(rows) >= labelled] = -100
    feeds = {"logits": logits, "labels": labels, "dloss": np.array(1.0, np.float32)}
    ours = [
        native("FusedCrossEntropy", ["logits", "labels"], ["loss", "statistics", "state"]),
        native("FusedCrossEntropyGrad", ["dloss", "logits", "labels", "statistics", "state"], ["dlogits"]),
    ]
    theirs = [
        stock("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss", "log"], ignore_index=-100),
        stock(
            "SoftmaxCrossEntropyLossGrad",
            ["dloss", "log", "labels"],
            ["dlogits"],
            MICROSOFT,
            ignore_index=-100,
            reduction="mean",
        ),
    ]
    target = torch.from_numpy(labels)
    results = ["loss", "dlogits"]
    counted = int((labels >= 0).sum())
    return Case(
        f"cross-entropy {rows}×{classes}, {labelled:.0%} labelled",
        {
            "fuseline": graph(ours, feeds, results, threads),
            "onnxruntime": graph(theirs, feeds, results, threads),
            "torch": backward(lambda x: F.cross_entropy(x, target), [logits], np.array(1.0, np.float32)),
        },
        bytes=(2 * counted + rows) * classes * 4,
    )


def _dropout_add(rows: int, width: int, threads: int) -> Case:
    x, residual, bias, dy = normal(rows, width), normal(rows, width), normal(width), normal(rows, width)
    feeds = {"x": x, "residual": residual, "bias": bias, "dy": dy, "ratio": np.array([0.1], np.float32)}
    results = ["y", "dx", "dbias"]
    ours = [
        native("FusedBiasDropoutAdd", ["x", "bias", "residual", "ratio", "seed"], ["y", "key"]),
        native("FusedBiasDropoutAddGrad", ["dy", "bias", "ratio", "key"], ["dx", "dbias"]),
    ]
    theirs = [
        stock("Add", ["x", "bias"], ["sum"]),
        stock("Dropout", ["sum", "p", "on"], ["dropped", "kept"]),
        stock("Add", ["dropped", "residual"], ["y"]),
        stock("DropoutGrad", ["dy", "kept", "p", "on"], ["dx"], MICROSOFT),
        stock("ReduceSum", ["dx", "axes"], ["dbias"], keepdims=0),
    ]
    stock_feeds = {
        **{k: v for k, v in feeds.items() if k != "ratio"},
        "p": np.array(0.1, np.float32),
        "on": np.array(True),
        "axes": np.array([0]),
    }
    return Case(
        f"bias+dropout+residual {rows}×{width}",
        {
            "fuseline": graph(ours, {**feeds, "seed": np.array([3])}, results, threads),
            "onnxruntime": graph(theirs, stock_feeds, results, threads),
            "torch": backward(lambda x, b, r: F.dropout(x + b, 0.1) + r, [x, bias, residual], dy),
        },
    )


def _softmax(rows: int, width: int, threads: int) -> Case:
    x, dy = normal(rows, width), normal(rows, width)
    feeds = {"x": x, "dy": dy}
    ours = [native("FusedSoftmax", ["x"], ["y"]), native("FusedSoftmaxGrad", ["dy", "y"], ["dx"])]
    theirs = [
        stock("Softmax", ["x"], ["y"], axis=-1),
        stock("SoftmaxGrad_13", ["dy", "y"], ["dx"], MICROSOFT, axis=-1),
    ]
    return Case(
        f"softmax {rows}×{width}",
        {
            "fuseline": graph(ours, feeds, ["y", "dx"], threads),
            "onnxruntime": graph(theirs, feeds, ["y", "dx"], threads),
            "torch": backward(lambda x: x.softmax(-1), [x], dy),
        },
    )


def _rotary(batch: int, tokens: int, heads: int, width: int, threads: int) -> Case:
    x, dy = normal(batch, tokens, heads, width), normal(batch, tokens, heads, width)
    cos, sin = normal(1, tokens, width), normal(1, tokens, width)
    feeds = {"x": x, "dy": dy, "cos": cos, "sin": sin}
    ours = [
        native("FusedRotary", ["x", "cos", "sin"], ["y"]),
        native("FusedRotaryGrad", ["dy", "cos", "sin"], ["dx"]),
    ]

    def half_turn(x: str, y: str, negated: int) -> list[Node]:
        """The halves of x swapped, one of them negated."""
        halves = [f"{y}_high", f"{y}_low"]
        split = stock("Split", [x], [halves[1], halves[0]], axis=-1)
        negate = stock("Neg", [halves[negated]], [f"{y}_negated"])
        halves[negated] = f"{y}_negated"
        return [split, negate, stock("Concat", halves, [y], axis=-1)]

    theirs = [
        *(stock("Unsqueeze", [n, "two"], [f"{n}u"]) for n in ("cos", "sin")),
        stock("Mul", ["x", "cosu"], ["xc"]),
        *half_turn("x", "turned", 0),
        stock("Mul", ["turned", "sinu"], ["xs"]),
        stock("Add", ["xc", "xs"], ["y"]),
        stock("Mul", ["dy", "cosu"], ["dc"]),
        stock("Mul", ["dy", "sinu"], ["dys"]),
        *half_turn("dys", "back", 1),
        stock("Add", ["dc", "back"], ["dx"]),
    ]

    def torch_way(x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * c + torch.cat([-high, low], -1) * s

    c, s = torch.from_numpy(cos)[:, :, None], torch.from_numpy(sin)[:, :, None]
    return Case(
        f"rotary {batch}×{tokens}×{heads}×{width}",
        {
            "fuseline": graph(ours, feeds, ["y", "dx"], threads),
            "onnxruntime": graph(theirs, {**feeds, "two": np.array([2])}, ["y", "dx"], threads),
            "torch": backward(torch_way, [x], dy),
        },
    )


def _swiglu(rows: int, width: int, threads: int) -> Case:
    gate, up, dy = normal(rows, width), normal(rows, width), normal(rows, width)
    feeds = {"gate": gate, "up": up, "dy": dy}
    results = ["y", "dgate", "dup"]
    ours = [
        native("FusedSwiGlu", ["gate", "up"], ["y"]),
        native("FusedSwiGluGrad", ["dy", "gate", "up"], results[1:]),
    ]
    theirs = [
        stock("Sigmoid", ["gate"], ["s"]),
        stock("Mul", ["gate", "s"], ["silu"]),
        stock("Mul", ["silu", "up"], ["y"]),
        stock("Mul", ["dy", "silu"], ["dup"]),
        stock("Mul", ["dy", "up"], ["dsilu"]),
        stock("Mul", ["dsilu", "s"], ["left"]),
        stock("Mul", ["dsilu", "gate"], ["ds"]),
        stock("SigmoidGrad", ["ds", "s"], ["right"], MICROSOFT),
        stock("Add", ["left", "right"], ["dgate"]),
    ]
    return Case(
        f"swiglu {rows}×{width}",
        {
            "fuseline": graph(ours, feeds, results, threads),
            "onnxruntime": graph(theirs, feeds, results, threads),
            "torch": backward(lambda g, u: F.silu(g) * u, [gate, up], dy),
        },
    )


def _column_sum(rows: int, width: int, threads: int) -> Case:
    x = normal(rows, width)
    tensor = torch.from_numpy(x)
    reduce = stock("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return Case(
        f"bias gradient {rows}×{width}",
        {
            "fuseline": graph([native("FusedColumnSum", ["x"], ["y"])], {"x": x}, ["y"], threads),
            "onnxruntime": graph([reduce], {"x": x, "axes": np.array([0])}, ["y"], threads),
            "torch": lambda: tensor.sum(0),
        },
    )


def row_cases(threads: int) -> Iterator[Case]:
    """One after the other, so that only one case's memory exists at a time."""
    for width in (256, 768):
        yield _embedding(1024, 30522, width, threads)
    yield _embedding(1024, 512, 768, threads)
    yield _cross_entropy(1024, 30522, 1.0, threads)
    yield _cross_entropy(1024, 30522, 0.15, threads)
    for width in (256, 768):
        yield _dropout_add(1024, width, threads)
    yield _softmax(12288, 128, threads)
    yield _rotary(4, 256, 12, 64, threads)
    yield _swiglu(1024, 2048, threads)
    for width in (256, 768, 3072):
        yield _column_sum(1024, width, threads)
