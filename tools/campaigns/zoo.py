"""Tiny models of many architectures, built from configs with a fixed seed; no download is needed.

    model = zoo.build("bert", attention="sdpa", dropout=0.1)
    batch = zoo.batch(model, batch=2, seq=16, seed=0)      # labels included

Two layers, hidden size 64: small enough to export and differentiate in seconds, large enough that
every structure of the architecture is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families import family_of
from fuseline.exporters.inputs import sample
from fuseline.exporters.tasks import infer_task

__all__ = ["ZOO", "Entry", "attentions", "batch", "build", "config", "names"]

Settings = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One architecture: its transformers classes and the settings that make it tiny."""

    model: str
    config: str
    settings: Settings = field(default_factory=dict)


_BASE: Settings = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
_ENCODER: Settings = {**_BASE, "pad_token_id": 0, "type_vocab_size": 2}
_ROBERTA: Settings = {**_BASE, "pad_token_id": 1, "max_position_embeddings": 130, "type_vocab_size": 1}
_DECODER: Settings = {
    **_BASE,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEAD_DIM: Settings = {**_DECODER, "head_dim": 16}
_SEQ2SEQ: Settings = {
    "vocab_size": 99,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_T5: Settings = {
    "vocab_size": 99,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
_VISION: Settings = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
}
_WAVE: Settings = {
    **_BASE,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 4, 3),
    "conv_stride": (10, 4, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 32,
    "apply_spec_augment": False,
    "pad_token_id": 0,
}
_TOWER: Settings = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "projection_dim": 32,
}
_TWO_TOWERS: Settings = {
    "text_config": {**_TOWER, "vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 98},
    "vision_config": {**_TOWER, "image_size": 32, "patch_size": 8},
    "projection_dim": 32,
}


def _classifier(model: str, settings: Settings = _ENCODER, **extra: Any) -> Entry:
    return Entry(f"{model}ForSequenceClassification", f"{model}Config", {**settings, **extra})


def _causal(model: str, settings: Settings = _DECODER, **extra: Any) -> Entry:
    return Entry(f"{model}ForCausalLM", f"{model}Config", {**settings, **extra})


def _vision(model: str, settings: Settings = _VISION, **extra: Any) -> Entry:
    return Entry(f"{model}ForImageClassification", f"{model}Config", {**settings, **extra})


def _seq2seq(model: str, settings: Settings = _SEQ2SEQ, **extra: Any) -> Entry:
    return Entry(f"{model}ForConditionalGeneration", f"{model}Config", {**settings, **extra})


def _bert(head: str, **extra: Any) -> Entry:
    return Entry(f"BertFor{head}", "BertConfig", {**_ENCODER, **extra})


_GPT2: Settings = {
    "vocab_size": 99,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

ZOO: dict[str, Entry] = {
    "bert": _bert("SequenceClassification"),
    "bert-mlm": _bert("MaskedLM"),
    "bert-token": _bert("TokenClassification"),
    "bert-qa": _bert("QuestionAnswering", num_labels=2),
    "bert-choice": _bert("MultipleChoice"),
    "roberta": _classifier("Roberta", _ROBERTA),
    "distilbert": _classifier(
        "DistilBert", vocab_size=99, dim=64, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=128
    ),
    "albert": _classifier("Albert", embedding_size=32),
    "electra": _classifier("Electra", embedding_size=32),
    "mpnet": _classifier("MPNet", _ROBERTA),
    "deberta-v2": _classifier(
        "DebertaV2",
        {**_ENCODER, "type_vocab_size": 0},
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        max_relative_positions=-1,
    ),
    "deberta": _classifier(
        "Deberta", {**_ENCODER, "type_vocab_size": 0}, relative_attention=True, pos_att_type=["c2p", "p2c"]
    ),
    "modernbert": _classifier(
        "ModernBert", _BASE, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
    ),
    "xlm-roberta": _classifier("XLMRoberta", _ROBERTA),
    "camembert": Entry("CamembertForTokenClassification", "CamembertConfig", _ROBERTA),
    "roformer": Entry("RoFormerForMaskedLM", "RoFormerConfig", {**_ENCODER, "embedding_size": 32}),
    "mobilebert": _classifier(
        "MobileBert",
        embedding_size=32,
        intra_bottleneck_size=32,
        true_hidden_size=32,
        num_feedforward_networks=2,
    ),
    "convbert": _classifier("ConvBert", embedding_size=32, conv_kernel_size=3, head_ratio=2, num_groups=1),
    "squeezebert": _classifier("SqueezeBert", embedding_size=64, q_groups=2, k_groups=2, v_groups=2),
    "esm": Entry("EsmForMaskedLM", "EsmConfig", {**_ROBERTA, "mask_token_id": 3}),
    "gpt2": Entry("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "gpt-neo": _causal(
        "GPTNeo", attention_types=[[["global", "local"], 1]], num_layers=2, num_heads=4, window_size=8
    ),
    "gpt-neox": _causal("GPTNeoX", tie_word_embeddings=False),
    "gptj": _causal("GPTJ", _GPT2, rotary_dim=8, n_inner=96),
    "gpt-bigcode": _causal("GPTBigCode", _GPT2, n_inner=96),
    "bloom": _causal("Bloom", {**_DECODER, "n_layer": 2, "n_head": 4}),
    "falcon": _causal("Falcon", alibi=False, new_decoder_architecture=False, multi_query=True),
    "opt": _causal("OPT", ffn_dim=96, word_embed_proj_dim=64),
    "llama": _causal("Llama"),
    "qwen2": _causal("Qwen2"),
    "qwen3": _causal("Qwen3", _HEAD_DIM),
    "mistral": _causal("Mistral", sliding_window=None),
    "phi": _causal("Phi", partial_rotary_factor=0.5),
    "phi3": _causal("Phi3"),
    "gemma": _causal("Gemma", _HEAD_DIM),
    "gemma2": _causal("Gemma2", _HEAD_DIM, query_pre_attn_scalar=16, sliding_window=8),
    "gemma3": Entry("Gemma3ForCausalLM", "Gemma3TextConfig", {**_HEAD_DIM, "sliding_window": 8}),
    "mixtral": _causal("Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "olmo2": _causal("Olmo2"),
    "stablelm": _causal("StableLm"),
    "starcoder2": _causal("Starcoder2"),
    "granite": _causal("Granite"),
    "mamba": _causal("Mamba", _BASE, state_size=8, conv_kernel=4, pad_token_id=0, use_mambapy=False),
    "t5": _seq2seq("T5", _T5),
    "mt5": _seq2seq("MT5", _T5),
    "bart": _seq2seq("Bart"),
    "mbart": _seq2seq("MBart"),
    "pegasus": _seq2seq("Pegasus"),
    "marian": Entry("MarianMTModel", "MarianConfig", _SEQ2SEQ),
    "whisper": _seq2seq(
        "Whisper",
        num_mel_bins=16,
        max_source_positions=30,
        max_target_positions=128,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
    "vit": _vision("ViT"),
    "deit": _vision("DeiT"),
    "beit": _vision("Beit", use_relative_position_bias=True, use_mask_token=False),
    "dinov2": _vision("Dinov2"),
    "swin": _vision(
        "Swin", {}, image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "convnext": _vision("ConvNext", {}, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "resnet": _vision(
        "ResNet", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    ),
    "regnet": _vision("RegNet", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "mobilenet-v2": _vision("MobileNetV2", {}, depth_multiplier=0.25, min_depth=8, image_size=64),
    "clip": Entry("CLIPModel", "CLIPConfig", _TWO_TOWERS),
    "wav2vec2": _classifier("Wav2Vec2", _WAVE),
    "wav2vec2-ctc": Entry("Wav2Vec2ForCTC", "Wav2Vec2Config", _WAVE),
    "hubert": _classifier("Hubert", _WAVE),
    "ast": Entry(
        "ASTForAudioClassification",
        "ASTConfig",
        {
            **_VISION,
            "patch_size": 4,
            "frequency_stride": 4,
            "time_stride": 4,
            "max_length": 32,
            "num_mel_bins": 16,
        },
    ),
}


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
