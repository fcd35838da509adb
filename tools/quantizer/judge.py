"""Judging a quantized file beside its float one: the report, and the criteria it has to meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.quantizer.behaviour import behaviour, latency, layer_noise
from fuseline.tools.quantizer.config import Config
from fuseline.tools.quantizer.criteria import Criteria, failures
from fuseline.tools.quantizer.data import Batches
from fuseline.tools.quantizer.metrics import predictor
from fuseline.tools.quantizer.plan import make_plan

__all__ = ["judge", "load_slices"]


def judge(
    before: str | Path,
    after: str | Path,
    batches: Batches,
    *,
    config: Config | None = None,
    slices: dict[str, Any] | None = None,
    criteria: Criteria | None = None,
    left: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The behaviour report of two files; `failed` lists the criteria that are not met."""
    plain, quantized = Model.load(before), Model.load(after)
    first, second = predictor(plain), predictor(quantized)
    report = {"model": Path(before).name, **behaviour(first, second, batches, slices)}
    report["size_ratio"] = Path(after).stat().st_size / Path(before).stat().st_size
    report["speed"] = latency(first, second, batches)
    report["layers"] = layer_noise(_prepared(plain, config), quantized, batches)
    report["left_in_float"] = left or {}
    report["failed"] = failures(criteria, report) if criteria is not None else []
    return report


def _prepared(model: Model, config: Config | None) -> Model:
    """The float model with the fusions that the quantized one has had, so that values compare by name."""
    preparation = (
        make_plan(config).preparation if config is not None and config.mode != "auto" else "inference"
    )
    return Pipeline.resolve(preparation).run(model).model


def load_slices(path: Path) -> dict[str, Any]:
    """Named parts of the evaluation data: an .npz with one array of booleans each."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise FuselineError(f"{path} is no .npz of booleans: {error}") from error
    for name, members in found.items():
        if members.dtype != bool or members.ndim != 1:
            kind = f"{members.dtype} of {members.ndim} axes"
            raise FuselineError(f"{path}: slice {name!r} is {kind}, and has to be one boolean per example")
    return found
