"""Tiny models of many architectures, built from configs with a fixed seed; no download is needed.

    model = zoo.build("bert", attention="sdpa", dropout=0.1)
    batch = zoo.batch(model, batch=2, seq=16, seed=0)      # labels included

Two layers, hidden size 64: small enough to export and differentiate in seconds, large enough that
every structure of the architecture is there.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import family_of
from fuseline.exporters.inputs import sample
from fuseline.exporters.tasks import infer_task
from fuseline.tools.campaigns.architectures.decoders import DECODERS
from fuseline.tools.campaigns.architectures.encoders import ENCODERS
from fuseline.tools.campaigns.architectures.entries import Entry, Settings
from fuseline.tools.campaigns.architectures.seq2seq import SEQ2SEQ
from fuseline.tools.campaigns.architectures.sound import SOUND
from fuseline.tools.campaigns.architectures.vision import VISION

__all__ = ["ZOO", "Entry", "attentions", "batch", "build", "config", "names"]

ZOO: dict[str, Entry] = {**ENCODERS, **DECODERS, **SEQ2SEQ, **VISION, **SOUND}


def names() -> list[str]:
    """The names of all architectures."""
    return list(ZOO)


def config(name: str, *, dropout: float = 0.0, attention: str = "eager", **overrides: Any) -> Any:
    """The tiny config of an architecture, every dropout rate set to `dropout`."""
    entry = _entry(name)
    settings = {"num_labels": 3, **entry.settings, **overrides}
    made = getattr(transformers, entry.config)(**settings)
    for part in (made, getattr(made, "text_config", None), getattr(made, "vision_config", None)):
        if part is not None:
            _set_dropout(part, dropout, keep=overrides)
            # A cache is for generating; in a training step it is only in the way.
            part.use_cache = False
    made._attn_implementation = attention
    return made


def build(
    name: str, *, seed: int = 0, dropout: float = 0.0, attention: str = "eager", **overrides: Any
) -> Any:
    """A tiny model of this architecture in training mode, its weights drawn from `seed`."""
    settings = config(name, dropout=dropout, attention=attention, **overrides)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return getattr(transformers, _entry(name).model)(settings).train()


def batch(model: Any, batch: int = 2, seq: int = 16, seed: int = 0) -> dict[str, Tensor]:
    """A random batch for any zoo model, labels included; `seq` scales every other axis too."""
    family = family_of(model.config)
    task = infer_task(type(model).__name__, model.config)
    inputs = family.inputs(model, task, train=True)
    return sample(inputs, family.sizes(batch, seq), model.config, seed)


def attentions(name: str) -> list[str]:
    """The attention implementations that transformers has for this architecture."""
    has_sdpa = getattr(transformers, _entry(name).model)._supports_sdpa
    return ["eager", "sdpa"] if has_sdpa else ["eager"]


def _entry(name: str) -> Entry:
    if name in ZOO:
        return ZOO[name]
    raise ExportError(f"no zoo model {name!r}", hint=f"there are: {', '.join(ZOO)}")


def _set_dropout(part: Any, rate: float, keep: Settings) -> None:
    for name, value in list(vars(part).items()):
        is_rate = "drop" in name and isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_rate and name not in keep:
            # LayerDrop skips whole layers by a coin of the host, which no graph can toss.
            setattr(part, name, 0.0 if "layerdrop" in name else rate)
