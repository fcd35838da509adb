"""Normalisation and activation kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch.nn.functional as F

from fuseline.tools.benchmarks.graphs import MICROSOFT, graph, native, stock
from fuseline.tools.benchmarks.kernel_cases import Case, backward, normal

__all__ = ["norm_cases"]


def _layer_norm(rows: int, width: int, threads: int) -> Case:
    x, scale, bias, dy = normal(rows, width), normal(width), normal(width), normal(rows, width)
    feeds = {"x": x, "scale": scale, "bias": bias, "dy": dy}
    results = ["y", "dx", "dscale", "dbias"]
    saved = ["dy", "x", "scale", "mean", "inv"]
    ours = [
        native("FusedLayerNorm", ["x", "scale", "bias"], ["y", "mean", "inv"]),
        native("FusedLayerNormGrad", saved, results[1:]),
    ]
    theirs = [
        stock("LayerNormalization", ["x", "scale", "bias"], ["y", "mean", "inv"]),
        stock("LayerNormalizationGrad", saved, results[1:], MICROSOFT, axis=-1),
    ]
    return Case(
        f"layer norm {rows}×{width}",
        {
            "fuseline": graph(ours, feeds, results, threads),
            "onnxruntime": graph(theirs, feeds, results, threads),
            "torch": backward(lambda x, s, b: F.layer_norm(x, (width,), s, b), [x, scale, bias], dy),
        },
    )


def _rms_norm(rows: int, width: int, threads: int) -> Case:
    x, scale, dy = normal(rows, width), normal(width), normal(rows, width)
    feeds = {"x": x, "scale": scale, "dy": dy}
    results = ["y", "dx", "dscale"]
    ours = [
        native("FusedRmsNorm", ["x", "scale"], ["y", "inv", "state"]),
        native("FusedRmsNormGrad", ["dy", "x", "scale", "inv", "state"], results[1:]),
    ]
    theirs = [
        stock("SimplifiedLayerNormalization", ["x", "scale"], ["y", "inv"], axis=-1),
        stock(
            "SimplifiedLayerNormalizationGrad", ["dy", "x", "scale", "inv"], results[1:], MICROSOFT, axis=-1
        ),
    ]
    return Case(
        f"rms norm {rows}×{width}",
        {
            "fuseline": graph(ours, feeds, results, threads),
            "onnxruntime": graph(theirs, feeds, results, threads),
            "torch": backward(lambda x, s: F.rms_norm(x, (width,), s), [x, scale], dy),
        },
    )


def _gelu(rows: int, width: int, threads: int, form: str) -> Case:
    x, bias, dy = normal(rows, width), normal(width), normal(rows, width)
    feeds = {"x": x, "bias": bias, "dy": dy, "axes": np.array([0])}
    results = ["y", "dx", "dbias"]
    name, theirs_name = ("FusedBiasGelu", "Gelu") if form == "none" else ("FusedBiasGeluTanh", "FastGelu")
    ours = [
        native(name, ["x", "bias"], ["y"]),
        native(f"{name}Grad", ["dy", "x", "bias"], ["dx", "dbias"]),
    ]
    theirs = [
        stock("Add", ["x", "bias"], ["sum"]),
        stock(theirs_name, ["sum"], ["y"], MICROSOFT),
        stock(f"{theirs_name}Grad", ["dy", "sum"], ["dx"], MICROSOFT),
        stock("ReduceSum", ["dx", "axes"], ["dbias"], keepdims=0),
    ]
    return Case(
        f"bias+gelu {'erf' if form == 'none' else form} {rows}×{width}",
        {
            "fuseline": graph(ours, {k: v for k, v in feeds.items() if k != "axes"}, results, threads),
            "onnxruntime": graph(theirs, feeds, results, threads),
            "torch": backward(lambda x, b: F.gelu(x + b, approximate=form), [x, bias], dy),
        },
    )


def norm_cases(threads: int) -> Iterator[Case]:
    for width in (256, 768):
        yield _layer_norm(1024, width, threads)
        yield _rms_norm(1024, width, threads)
    for width in (1024, 3072):
        yield _gelu(1024, width, threads, "none")
    yield _gelu(1024, 3072, threads, "tanh")
