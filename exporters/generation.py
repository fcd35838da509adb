"""Text from exported graphs: a merged decoder (and an encoder where there is one) and a greedy loop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine.model import Model
from fuseline.exporters.context import Clock, Progress, attention_set
from fuseline.exporters.decoding import decoder_plan, encoder_plan
from fuseline.exporters.errors import ExportError
from fuseline.exporters.export import export_plan
from fuseline.exporters.sources import is_transformers, resolve
from fuseline.exporters.verify import Runner

__all__ = ["Generator", "export_generator"]

Array = npt.NDArray[Any]
_CONFIG = "generation.json"
_GENERATIVE = {"causal-lm", "seq2seq-lm", "speech-seq2seq"}


def export_generator(
    source: Any,
    *,
    task: str | None = None,
    opset: int = 18,
    attention: str | None = None,
    seed: int = 0,
    check: bool = True,
    progress: Progress | None = None,
) -> Generator:
    """Export a generative model with past keys and values: a decoder, and an encoder where there is one."""
    clock = Clock(progress)
    with clock.phase("load"):
        resolved = resolve(source, task=task, attention=attention, seed=seed)
    if not is_transformers(resolved.module) or resolved.task is None or resolved.task.name not in _GENERATIVE:
        name = resolved.task.name if resolved.task else "a plain module"
        raise ExportError(
            f"{resolved.label} ({name}) does not generate", hint=f"tasks: {', '.join(sorted(_GENERATIVE))}"
        )
    config: Any = resolved.module.config
    encoder = None
    with attention_set(resolved, attention):
        if config.is_encoder_decoder:
            plan = encoder_plan(resolved)
            encoder = export_plan(plan, resolved, opset=opset, check=check, clock=clock)
        plan = decoder_plan(resolved)
        decoder = export_plan(plan, resolved, opset=opset, check=check, clock=clock)
    return Generator(decoder, encoder, _settings(resolved.module))


def _settings(module: Any) -> dict[str, Any]:
    """The token ids that steer generation."""
    chosen = getattr(module, "generation_config", None) or module.config
    end = chosen.eos_token_id
    ends = end if isinstance(end, list) else [] if end is None else [end]
    start = getattr(chosen, "decoder_start_token_id", None)
    pad = chosen.pad_token_id
    return {
        "eos_token_ids": ends,
        "pad_token_id": pad if pad is not None else (ends[0] if ends else 0),
        "decoder_start_token_id": start if start is not None else getattr(chosen, "bos_token_id", None),
    }


@dataclass
class Generator:
    """A decoder graph, perhaps an encoder graph, and the tokens at which to start and to stop."""

    decoder: Model
    encoder: Model | None
    settings: dict[str, Any]

    def save(self, folder: str | Path) -> None:
        """Write decoder.onnx, encoder.onnx and generation.json."""
        folder = Path(folder)
        self.decoder.save(folder / "decoder.onnx")
        if self.encoder is not None:
            self.encoder.save(folder / "encoder.onnx")
        (folder / _CONFIG).write_text(json.dumps(self.settings, indent=2) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> Generator:
        folder = Path(folder)
        if not (folder / _CONFIG).is_file():
            raise ExportError(f"{folder} holds no {_CONFIG}", hint="write one with Generator.save")
        encoder = folder / "encoder.onnx"
        return cls(
            Model.load(folder / "decoder.onnx"),
            Model.load(encoder) if encoder.is_file() else None,
            json.loads((folder / _CONFIG).read_text()),
        )

    def generate(self, inputs: Mapping[str, Array], max_new_tokens: int = 20) -> Array:
        """Greedy tokens; for a decoder-only model behind the prompt, else behind the start token."""
        decoder = Runner(self.decoder)
        fixed = self._encode(inputs)
        tokens, mask = self._beginning(inputs, fixed)
        past = self._empty_past(len(tokens))
        done = np.zeros(len(tokens), dtype=bool)
        new = tokens
        for _ in range(max_new_tokens):
            made = decoder(self._feeds(new, mask, past) | fixed)
            chosen = made["logits"][:, -1].argmax(axis=-1)
            chosen = np.where(done, self.settings["pad_token_id"], chosen)
            done |= np.isin(chosen, self.settings["eos_token_ids"])
            new = chosen[:, None].astype(np.int64)
            tokens = np.concatenate([tokens, new], axis=1)
            mask = np.concatenate([mask, np.ones_like(new)], axis=1)
            past = {name.replace("present", "past"): made[name] for name in made if name != "logits"}
            if done.all():
                break
        return tokens

    def _encode(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What stays the same over all steps: cross keys and values and the source's mask."""
        if self.encoder is None:
            return {}
        wanted = {v.name for v in self.decoder.graph.inputs}
        known = {str(v.name) for v in self.encoder.graph.inputs}
        made = Runner(self.encoder)({name: value for name, value in inputs.items() if name in known})
        fixed = {name: value for name, value in made.items() if name in wanted}
        if "encoder_attention_mask" in wanted:
            fixed["encoder_attention_mask"] = inputs["attention_mask"]
        return fixed

    def _beginning(self, inputs: Mapping[str, Array], fixed: Mapping[str, Array]) -> tuple[Array, Array]:
        if self.encoder is None:
            tokens = np.asarray(inputs["input_ids"], dtype=np.int64)
            mask = inputs.get("attention_mask")
            return tokens, np.ones_like(tokens) if mask is None else np.asarray(mask, dtype=np.int64)
        rows = len(next(iter(fixed.values())))
        start = np.full((rows, 1), self.settings["decoder_start_token_id"], dtype=np.int64)
        return start, np.ones_like(start)

    def _feeds(self, new: Array, mask: Array, past: Mapping[str, Array]) -> dict[str, Array]:
        names = {v.name for v in self.decoder.graph.inputs}
        feeds: dict[str, Array] = {"input_ids": new, **past}
        if "attention_mask" in names:
            feeds["attention_mask"] = mask
        if "position_ids" in names:
            # Padding does not count: the first real token of every row is at position 0.
            positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
            feeds["position_ids"] = positions[:, -new.shape[1] :]
        return feeds

    def _empty_past(self, rows: int) -> dict[str, Array]:
        empty: dict[str, Array] = {}
        for value in self.decoder.graph.inputs:
            if value.name and value.name.startswith("past.") and value.shape and value.dtype:
                heads, width = value.shape[1], value.shape[3]
                assert isinstance(heads, int)
                assert isinstance(width, int)
                empty[value.name] = np.zeros((rows, heads, 0, width), dtype=value.dtype.numpy())
        return empty
