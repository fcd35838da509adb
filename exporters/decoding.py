"""Decoders with their past keys and values as inputs and outputs, so that one graph prefills and decodes.

The past may be empty, so the same graph takes a whole prompt at first and one token at a time later. An
encoder-decoder model gives two graphs: the encoder, which also computes the keys and values that every
decoder layer will attend to, and the decoder.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutput

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import Family, family_of
from fuseline.exporters.inputs import Input, sample
from fuseline.exporters.plan import EXAMPLE_SIZES, Case, Plan
from fuseline.exporters.sources import Source
from fuseline.exporters.wrapper import Wrapper

__all__ = ["decoder_plan", "encoder_plan"]

#: (batch, new tokens, past tokens, source tokens), all different in the example.
_EXAMPLE = (3, 4, 5, 7)
#: A prompt, a decoding step, and several tokens after a past.
_CASES = tuple(Case(sizes, "left") for sizes in ((1, 6, 0, 9), (2, 1, 7, 5), (4, 3, 2, 8)))


@dataclass(frozen=True)
class _Layer:
    """The shape of one layer's cache: heads, key and value width."""

    heads: int
    key: int
    value: int


def decoder_plan(source: Source) -> Plan:
    """The merged decoder: (new tokens, mask, past) → (logits, present)."""
    model, config = source.module, _config(source.module)
    family = family_of(config)
    own, cross = _cache_shapes(model, family, source)
    encoded = bool(cross)
    accepted = inspect.signature(model.forward).parameters
    with_positions = "position_ids" in accepted and not encoded
    inputs = [Input("input_ids", ("batch", "sequence"), "tokens")]
    if not encoded:
        inputs.append(Input("attention_mask", ("batch", "total"), "mask"))
    elif "attention_mask" in accepted and model.main_input_name == "input_ids":
        inputs.append(Input("encoder_attention_mask", ("batch", "source"), "mask"))
    if with_positions:
        inputs.append(Input("position_ids", ("batch", "sequence"), "positions"))
    inputs += _cache_inputs("past", own, "past")
    inputs += _cache_inputs("cross", cross, "source")
    names = [item.name for item in inputs]
    wrapper: Wrapper = (_EncodedDecoder if encoded else _CausalDecoder)(model, names, len(own))
    declared = tuple(inputs)

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        return _decoder_batch(declared, case.sizes, config, seed)

    return Plan(wrapper, declared, family, False, make_batch, _EXAMPLE, _CASES)


def encoder_plan(source: Source) -> Plan:
    """The encoder of an encoder-decoder model, with every decoder layer's cross keys and values."""
    model, task = source.module, source.task
    assert task is not None
    config = _config(model)
    family = family_of(config)
    inputs = family.inputs(model, task, train=False)
    wrapper = _Encoder(model, [item.name for item in inputs])

    def make_batch(case: Case, seed: int) -> dict[str, Tensor]:
        return sample(inputs, family.sizes(*case.sizes), config, seed, case.padding)

    return Plan(wrapper, inputs, family, False, make_batch, EXAMPLE_SIZES)


class _CausalDecoder(Wrapper):
    """A decoder-only model with its cache spelled out."""

    def __init__(self, model: nn.Module, inputs: Sequence[str], layers: int) -> None:
        super().__init__(model, inputs)
        self.layers = layers

    def compute(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        cache = _filled("past", given, self.layers)
        passed = {name: value for name, value in given.items() if not name.startswith("past.")}
        result = self.model(**passed, past_key_values=cache, use_cache=True, return_dict=True)
        return {"logits": result.logits, **_content("present", cache)}


class _EncodedDecoder(Wrapper):
    """The decoder of an encoder-decoder model, its cross keys and values given."""

    def __init__(self, model: nn.Module, inputs: Sequence[str], layers: int) -> None:
        super().__init__(model, inputs)
        self.layers = layers

    def compute(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        cross = _filled("cross", given, self.layers)
        # A cache that is not empty counts as computed, so the encoder's states are never read.
        cache = EncoderDecoderCache(_filled("past", given, self.layers), cross)
        cache.is_updated = dict.fromkeys(range(self.layers), True)
        key = given["cross.0.key"]
        states: Any = key.new_zeros((key.shape[0], key.shape[2], _width(_config(self.model))))
        mask = given.get("encoder_attention_mask")
        result = self.model(
            decoder_input_ids=given["input_ids"],
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
            **({} if mask is None else {"attention_mask": mask}),
        )
        return {"logits": result.logits, **_content("present", cache.self_attention_cache)}


class _Encoder(Wrapper):
    """The encoder, and what one decoding step would leave in the cross-attention cache."""

    def compute(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        batch = next(iter(given.values())).shape[0]
        start = torch.zeros((batch, 1), dtype=torch.long)
        result = self.model(
            **given, decoder_input_ids=start, past_key_values=cache, use_cache=True, return_dict=True
        )
        states = {"last_hidden_state": result.encoder_last_hidden_state}
        return {**states, **_content("cross", cache.cross_attention_cache)}


def _filled(stem: str, given: Mapping[str, Tensor], layers: int) -> DynamicCache:
    """A cache that holds the given keys and values as they are."""
    cache = DynamicCache()
    for i in range(layers):
        layer: Any = DynamicLayer()  # type: ignore[no-untyped-call]
        key, value = given[f"{stem}.{i}.key"], given[f"{stem}.{i}.value"]
        layer.lazy_initialization(key, value)
        layer.keys, layer.values = key, value
        cache.layers.append(layer)
    return cache


def _content(stem: str, cache: DynamicCache) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    layers: list[Any] = cache.layers
    for i, layer in enumerate(layers):
        found |= {f"{stem}.{i}.key": layer.keys, f"{stem}.{i}.value": layer.values}
    return found


def _cache_shapes(model: nn.Module, family: Family, source: Source) -> tuple[list[_Layer], list[_Layer]]:
    """Run the model once on a tiny batch and look at the cache it leaves."""
    task = source.task
    assert task is not None
    config = _config(model)
    batch = sample(family.inputs(model, task, train=False), family.sizes(1, 4), config)
    if getattr(config, "is_encoder_decoder", False):
        batch["decoder_input_ids"] = torch.zeros((1, 1), dtype=torch.long)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            cache = getattr(model(**batch, use_cache=True, return_dict=True), "past_key_values", None)
    finally:
        model.train(was_training)
    if isinstance(cache, EncoderDecoderCache):
        return _layers(cache.self_attention_cache), _layers(cache.cross_attention_cache)
    if not isinstance(cache, DynamicCache):
        raise ExportError(
            f"{source.label} keeps no past keys and values ({type(cache).__name__})",
            hint="export it without past; it is then run on the whole sequence for every token",
        )
    return _layers(cache), []


def _layers(cache: Any) -> list[_Layer]:
    return [_Layer(la.keys.shape[1], la.keys.shape[-1], la.values.shape[-1]) for la in cache.layers]


def _cache_inputs(stem: str, layers: Sequence[_Layer], length: str) -> list[Input]:
    made: list[Input] = []
    for i, layer in enumerate(layers):
        for part, width in (("key", layer.key), ("value", layer.value)):
            made.append(Input(f"{stem}.{i}.{part}", ("batch", layer.heads, length, width), "normal"))
    return made


def _decoder_batch(
    inputs: tuple[Input, ...], sizes: tuple[int, ...], config: Any, seed: int
) -> dict[str, Tensor]:
    batch, new, past, source = sizes
    by_name = {"batch": batch, "sequence": new, "past": past, "source": source, "total": past + new}
    made = sample(inputs, by_name, config, seed)
    if "position_ids" in made:
        made["position_ids"] = torch.arange(past, past + new).expand(batch, new).contiguous()
    if "attention_mask" in made:
        # Left padding, as batches for generation have it: hide the first token of every row but the first.
        made["attention_mask"] = torch.ones((batch, past + new), dtype=torch.long)
        made["attention_mask"][1:, 0] = 0 if past else 1
    return made


def _config(model: nn.Module) -> Any:
    return model.config


def _width(config: Any) -> int:
    return int(getattr(config, "d_model", None) or config.hidden_size)
