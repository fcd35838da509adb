"""Batches to calibrate and to judge with: from .npz files, functions, iterables, or made up."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.errors import FuselineError, did_you_mean
from fuseline.engine.inputs import check_inputs, generate_sets, interface
from fuseline.engine.model import Model

__all__ = ["Batch", "Batches", "batches_of", "made_up", "named_object"]

Array = npt.NDArray[Any]
LABELS = "labels"
TEXTS = "texts"


@dataclass(frozen=True)
class Batch:
    """Inputs by name, and labels if there are any; `texts` are what people recognise the examples by."""

    inputs: Mapping[str, Array]
    labels: Array | None = None
    texts: Array | None = None


@dataclass(frozen=True)
class Batches:
    """Batches that can be gone through again and again; `origin` says where they come from."""

    items: Sequence[Batch]
    origin: str

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def labelled(self) -> bool:
        return all(b.labels is not None for b in self.items)

    def inputs(self) -> Iterator[Mapping[str, Array]]:
        return (b.inputs for b in self.items)

    def first(self, count: int) -> Batches:
        return Batches(self.items[:count], self.origin)


def batches_of(source: Any, model: Model, *, batch_size: int, samples: int | None = None) -> Batches:
    """Batches from an .npz file, `module:function`, or an iterable of dictionaries."""
    if isinstance(source, Batches):
        return source
    if isinstance(source, str | Path):
        if str(source).endswith(".npz"):
            return Batches(_stacked(Path(source), model, batch_size, samples), str(source))
        origin, limit = str(source), _limit(samples, batch_size)
        made = named_object(origin)
        try:
            source = made() if callable(made) else made
            given = list(itertools.islice(_iterable(source), limit))
        except FuselineError:
            raise
        except Exception as error:  # code of the user's own
            raise FuselineError(f"{origin} gave no batches: {type(error).__name__}: {error}") from error
    else:
        origin = "the data given"
        given = list(itertools.islice(_iterable(source), _limit(samples, batch_size)))
    items = [_batch(item, model, origin) for item in given]
    if not items:
        raise FuselineError(f"{origin} holds no batches")
    return Batches(items, origin)


def made_up(model: Model, count: int = 8) -> Batches:
    """Batches of random content that the model runs on, where there is nothing better."""
    return Batches([Batch(b) for b in generate_sets(model, count=count)], "random inputs")


def named_object(text: str) -> Any:
    """What `module:name` names."""
    module, colon, name = text.partition(":")
    if not colon:
        raise FuselineError(f"{text!r} is neither an .npz file nor module:function")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise FuselineError(f"{text!r}: the module cannot be imported: {error}") from error
    if not hasattr(found, name):
        raise FuselineError(f"{module!r} has no {name!r}", hint=did_you_mean(name, dir(found)))
    return getattr(found, name)


def _limit(samples: int | None, batch_size: int) -> int | None:
    return None if samples is None else max(1, samples // batch_size)


def _iterable(source: Any) -> Iterable[Any]:
    if not isinstance(source, Iterable):
        raise FuselineError(f"batches have to be an iterable of dictionaries, not {type(source).__name__}")
    return source


def _batch(item: Any, model: Model, origin: str) -> Batch:
    labels = None
    if isinstance(item, tuple) and len(item) == 2:
        item, labels = item
    if not isinstance(item, Mapping):
        raise FuselineError(f"a batch is a dictionary of inputs, or it and labels, not {type(item).__name__}")
    wanted = {i.name for i in interface(model)}
    arrays = {str(k): np.asarray(v) for k, v in item.items()}
    if labels is None and LABELS in arrays and LABELS not in wanted:
        labels = arrays[LABELS]
    inputs = {k: v for k, v in arrays.items() if k in wanted}
    check_inputs(inputs, model, source=origin)
    return Batch(inputs, labels, arrays.get(TEXTS) if TEXTS not in wanted else None)


def _stacked(path: Path, model: Model, batch_size: int, samples: int | None) -> list[Batch]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise FuselineError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise FuselineError(f"{path} is not an .npz archive of arrays: {error}") from error
    lengths = {name: len(a) if a.ndim else 0 for name, a in arrays.items()}
    total = min(lengths.values(), default=0)
    if not total:
        raise FuselineError(f"{path} holds no examples")
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{count} of {name!r}" for name, count in lengths.items())
        raise FuselineError(f"{path} does not hold as many examples of each array: {each}")
    fixed = {i.dims[0] for i in interface(model) if i.dims and isinstance(i.dims[0], int)}
    batch_size = min(fixed, default=batch_size)
    if fixed and total < batch_size:
        raise FuselineError(f"{path} holds {total} examples, but the model takes {batch_size} at once")
    chosen = np.arange(total)
    if samples is not None and samples < total:
        # Spread over the file, which may be in some order.
        chosen = np.linspace(0, total - 1, samples).astype(np.int64)
    starts = range(0, len(chosen) - batch_size + 1 if fixed else len(chosen), batch_size)
    rows = [chosen[s : s + batch_size] for s in starts]
    return [_batch({k: v[r] for k, v in arrays.items()}, model, str(path)) for r in rows]
