"""Attention, weight gradients and linear layers in bf16: the kernels bound by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from fuseline.kernels import multiplies_bf16
from fuseline.tools.benchmarks.graphs import MICROSOFT, Node, graph, native, stock
from fuseline.tools.benchmarks.kernel_cases import Case, backward, normal

__all__ = ["product_cases"]

_EMPTY = np.zeros(0, np.float32)
_ATTENTION = ((8, 128, 12, False), (4, 256, 12, True), (2, 512, 12, False), (8, 128, 4, False))
_LINEAR = ((256, 256), (256, 1024), (768, 768), (768, 3072), (3072, 768))


def _attention(batch: int, tokens: int, heads: int, width: int, causal: bool, threads: int) -> Case:
    q, k, v, dy = (normal(batch, tokens, heads, width) for _ in range(4))
    scale = width**-0.5
    feeds = {"q": q, "k": k, "v": v, "dy": dy}
    extras = {"mask": _EMPTY, "bias": _EMPTY, "ratio": np.zeros(1, np.float32), "seed": np.array([0])}
    forward = ["q", "k", "v", "mask", "bias", "ratio"]
    results = ["y", "dq", "dk", "dv"]
    ours = [
        native("FusedAttention", [*forward, "seed"], ["y", "stats", "state", "key"], causal=int(causal)),
        native("FusedAttentionGrad", ["dy", *forward, "y", "stats", "state", "key"], ["dq", "dk", "dv"]),
    ]
    hidden = np.triu(np.full((tokens, tokens), np.finfo(np.float32).min), 1).astype(np.float32)
    turned = (0, 2, 1, 3)

    def product(a: str, b: str, y: str, **attributes: int | float) -> Node:
        return stock("FusedMatMul", [a, b], [y], MICROSOFT, **attributes)

    # The nodes that ONNX Runtime's gradient builder makes of exported attention.
    theirs = [
        *(stock("Transpose", [n], [f"{n}t"], perm=turned) for n in ("q", "k", "v", "dy")),
        product("qt", "kt", "s", transB=1, alpha=scale),
        stock("Add", ["s", "hidden"], ["sm"]) if causal else stock("Identity", ["s"], ["sm"]),
        stock("Softmax", ["sm"], ["p"], axis=-1),
        product("p", "vt", "yt"),
        product("p", "dyt", "dvt", transA=1),
        product("dyt", "vt", "dp", transB=1),
        stock("SoftmaxGrad_13", ["dp", "p"], ["ds"], MICROSOFT, axis=-1),
        product("ds", "kt", "dqt", alpha=scale),
        product("ds", "qt", "dkt", transA=1, alpha=scale),
        *(stock("Transpose", [f"{n}t"], [n], perm=turned) for n in ("y", "dq", "dk", "dv")),
    ]

    def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    return Case(
        f"attention{' causal' if causal else ''} {batch}×{tokens}×{heads}×{width}",
        {
            "fuseline": graph(ours, {**feeds, **extras}, results, threads),
            "onnxruntime": graph(
                theirs, {**feeds, **({"hidden": hidden} if causal else {})}, results, threads
            ),
            "torch": backward(sdpa, [q, k, v], dy),
        },
        flops=14 * batch * heads * tokens * tokens * width // (2 if causal else 1),
    )


def _weight_gradient(rows: int, inputs: int, outputs: int, threads: int) -> Case:
    dy, x = normal(rows, outputs), normal(rows, inputs)
    feeds = {"dy": dy, "x": x}
    ours = [native("FusedWeightGrad", ["dy", "x"], ["dw", "db"])]
    theirs = [
        stock("Gemm", ["dy", "x"], ["dw"], transA=1),
        stock("ReduceSum", ["dy", "axes"], ["db"], keepdims=0),
    ]
    a, b = torch.from_numpy(dy), torch.from_numpy(x)
    return Case(
        f"weight gradient {rows}×{inputs}→{outputs}",
        {
            "fuseline": graph(ours, feeds, ["dw", "db"], threads),
            "onnxruntime": graph(theirs, {**feeds, "axes": np.array([0])}, ["dw", "db"], threads),
            "torch": lambda: (a.t() @ b, a.sum(0)),
        },
        flops=2 * rows * inputs * outputs,
    )


def _linear_bf16(rows: int, inputs: int, outputs: int, threads: int, gradients: bool) -> Case:
    """Forward alone, or with all gradients; ONNX Runtime's way is in fp32, torch's is autocast to bf16."""
    x, weight, bias, dy = (
        normal(rows, inputs),
        normal(outputs, inputs),
        normal(outputs),
        normal(rows, outputs),
    )
    feeds = {"x": x, "weight": weight, "bias": bias, **({"dy": dy} if gradients else {})}
    results = ["y", *(["dx", "dw", "db"] if gradients else [])]
    ours = [native("FusedLinearBf16", ["x", "weight", "bias"], ["y", "rounded", "state"])]
    theirs = [stock("Gemm", ["x", "weight", "bias"], ["y"], transB=1)]
    if gradients:
        saved = ["dy", "rounded", "weight", "bias", "state"]
        ours.append(native("FusedLinearBf16Grad", saved, results[1:]))
        theirs += [
            stock("Gemm", ["dy", "weight"], ["dx"]),
            stock("Gemm", ["dy", "x"], ["dw"], transA=1),
            stock("ReduceSum", ["dy", "axes"], ["db"], keepdims=0),
        ]
    tensors = [torch.from_numpy(value).requires_grad_(gradients) for value in (x, weight, bias)]
    slopes = torch.from_numpy(dy).bfloat16()

    def autocast() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            y = F.linear(*tensors)
        return torch.autograd.grad(y, tensors, slopes) if gradients else y

    return Case(
        f"bf16 linear{' and gradients' if gradients else ''} {rows}×{inputs}→{outputs}",
        {
            "fuseline": graph(ours, feeds, results, threads),
            "onnxruntime": graph(
                theirs, {**feeds, **({"axes": np.array([0])} if gradients else {})}, results, threads
            ),
            "torch": autocast,
        },
        flops=(6 if gradients else 2) * rows * inputs * outputs,
    )


def product_cases(threads: int) -> Iterator[Case]:
    for batch, tokens, heads, causal in _ATTENTION:
        yield _attention(batch, tokens, heads, 64, causal, threads)
    for inputs, outputs in _LINEAR:
        yield _weight_gradient(1024, inputs, outputs, threads)
    if multiplies_bf16():
        for inputs, outputs in _LINEAR:
            for gradients in (False, True):
                yield _linear_bf16(2048, inputs, outputs, threads, gradients)
