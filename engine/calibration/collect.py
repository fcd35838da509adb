"""Running a model on calibration data and keeping statistics of its values, not the values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine import runtime
from fuseline.engine.calibration.table import CalibrationTable
from fuseline.engine.errors import FuselineError
from fuseline.engine.files import give_back_pages
from fuseline.engine.model import Model

__all__ = ["calibrate", "fetching"]

Array = npt.NDArray[Any]
Batch = Mapping[str, Array]


def calibrate(
    model: Model,
    batches: Iterable[Batch],
    values: Collection[str],
    *,
    channels: Collection[str] = (),
    progress: Callable[[int], None] | None = None,
) -> CalibrationTable:
    """Statistics of the named values over all batches, in one pass over the data and constant memory.

    `channels` are those whose last axis is looked at entry by entry. `progress` hears the batches done.
    """
    table, per_channel = CalibrationTable(), set(channels)
    number = 0
    for number, results in enumerate(fetching(model, batches, values), 1):
        while results:  # each goes once it is seen: the next batch finds room
            name, array = results.popitem()
            if array.dtype.kind == "f":
                table[name].see(np.asarray(array, np.float32), channels=name in per_channel)
        if progress is not None:
            progress(number)
    if not number:
        raise FuselineError("there is no calibration data", hint="give at least one batch of inputs")
    return table


def fetching(model: Model, batches: Iterable[Batch], values: Collection[str]) -> Iterable[dict[str, Array]]:
    """The named values of the main graph, batch by batch."""
    wanted = set(values)
    fed = {v.name for v in model.graph.inputs} & wanted
    # An input that is an initializer too need not be given.
    defaults = {
        v.name: v.const_value.numpy()
        for v in model.graph.inputs
        if v.name in fed and v.const_value is not None
    }
    copy = model.clone()
    copy.graph.outputs.clear()
    made = [v for node in copy.graph for v in node.outputs if v.name in wanted]
    copy.graph.outputs.extend(made)
    missing = wanted - fed - {v.name for v in made}
    if missing:
        raise FuselineError(f"the main graph has no value {sorted(missing)[0]!r} to look at")
    if not made:
        yield from (_given(fed, defaults, batch) for batch in batches)
        return
    # From a file with its weights beside it: ONNX Runtime maps them, and nothing is held twice.
    with tempfile.TemporaryDirectory(prefix="fuseline-calibration-") as folder:
        path = Path(folder) / "model.onnx"
        copy.save(path, external=True)
        names = [v.name for v in made if v.name is not None]
        del copy, made
        give_back_pages(model.ir)
        running = runtime.session(path, options=_frugal)
        for batch in batches:
            yield _given(fed, defaults, batch) | runtime.run(running, batch, names)


def _given(names: Collection[str | None], defaults: Mapping[Any, Array], batch: Batch) -> dict[str, Array]:
    return {n: np.asarray(batch[n] if n in batch else defaults[n]) for n in names if n is not None}


def _frugal(settings: Any) -> None:
    """Neither packed copies of weights nor an arena that keeps what one batch needed."""
    settings.add_session_config_entry("session.disable_prepacking", "1")
    settings.enable_cpu_mem_arena = False
