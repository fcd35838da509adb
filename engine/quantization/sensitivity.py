"""How much noise each site adds to the outputs when it alone is quantized: one model, one sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline

__all__ = ["sensitivity"]

Array = npt.NDArray[Any]


def sensitivity(
    model: Model,
    switched: Pipeline,
    switches: str,
    batches: Sequence[Mapping[str, Array]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Node → the noise power it adds to the outputs, relative to the signal; the worst first.

    `switched` is a pipeline that makes a model with an input `switches`, one boolean per rewrite. So one
    session does for all of them.
    """
    result = switched.run(model)
    sites = [rewrite.site for record in result.records for rewrite in record.rewrites]
    if not sites:
        return {}
    running = runtime.session(result.model, optimize="basic")
    off = np.zeros(len(sites), np.bool_)
    outputs = [v.name for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()]
    names = [n for n in outputs if n is not None]
    if not names:
        raise FuselineError("the model has no output of real numbers to measure noise in")
    clean = [runtime.run(running, {**b, switches: off}, names) for b in batches]
    noise: dict[str, float] = {}
    for place, site in enumerate(sites):
        chosen = off.copy()
        chosen[place] = True
        noisy = [runtime.run(running, {**b, switches: chosen}, names) for b in batches]
        noise[site] = _relative_noise(clean, noisy)
        if progress is not None:
            progress(place + 1, len(sites))
    return dict(sorted(noise.items(), key=lambda item: -item[1]))


def _relative_noise(clean: list[dict[str, Array]], noisy: list[dict[str, Array]]) -> float:
    """The worst output counts."""
    worst = 0.0
    for name in clean[0]:
        signal = sum(float((c[name].astype(np.float64) ** 2).sum()) for c in clean)
        error = sum(
            float(((c[name].astype(np.float64) - n[name]) ** 2).sum())
            for c, n in zip(clean, noisy, strict=True)
        )
        worst = max(worst, error / max(signal, 1e-300))
    return worst if np.isfinite(worst) else float("inf")
