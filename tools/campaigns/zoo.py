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


_MOE: Settings = {
    **_DECODER,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
_STAGES: Settings = {"image_size": 32, "num_channels": 3}
_PYRAMID: Settings = {
    "image_size": 64,
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [16, 32],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
}
_LAYOUT: Settings = {**_ENCODER, "max_2d_position_embeddings": 64}
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
    # Heads of architectures that are above.
    "bert-regression": _bert("SequenceClassification", num_labels=1),
    "bert-multilabel": _bert("SequenceClassification", problem_type="multi_label_classification"),
    "roberta-mlm": Entry("RobertaForMaskedLM", "RobertaConfig", _ROBERTA),
    "albert-mlm": Entry("AlbertForMaskedLM", "AlbertConfig", {**_ENCODER, "embedding_size": 32}),
    "electra-token": Entry(
        "ElectraForTokenClassification", "ElectraConfig", {**_ENCODER, "embedding_size": 32}
    ),
    "modernbert-mlm": Entry(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {
            **_BASE,
            "pad_token_id": 0,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt2-classifier": _classifier("GPT2", _GPT2),
    "llama-classifier": _classifier("Llama", _DECODER),
    "qwen2-token": Entry("Qwen2ForTokenClassification", "Qwen2Config", _DECODER),
    "t5-token": Entry("T5ForTokenClassification", "T5Config", _T5),
    "whisper-classifier": Entry(
        "WhisperForAudioClassification",
        "WhisperConfig",
        {**_SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 30, "classifier_proj_size": 32},
    ),
    # More encoders.
    "ernie": _classifier("Ernie", {**_ENCODER, "use_task_id": False}),
    "megatron-bert": _classifier("MegatronBert"),
    "rembert": _classifier("RemBert", input_embedding_size=32, output_embedding_size=32),
    "nystromformer": _classifier("Nystromformer", num_landmarks=8, segment_means_seq_len=8),
    "data2vec-text": _classifier("Data2VecText", _ROBERTA),
    "roberta-prelayernorm": _classifier("RobertaPreLayerNorm", _ROBERTA),
    "xmod": _classifier("Xmod", _ROBERTA, languages=["en_XX"], default_language="en_XX"),
    "xlm-roberta-xl": _classifier("XLMRobertaXL", _ROBERTA),
    "layoutlm": _classifier("LayoutLM", _LAYOUT),
    "layoutlmv3": _classifier(
        "LayoutLMv3",
        _LAYOUT,
        input_size=32,
        patch_size=8,
        coordinate_size=10,
        shape_size=12,
        visual_embed=False,
    ),
    "lilt": _classifier("Lilt", {**_LAYOUT, "type_vocab_size": 1, "hidden_size": 96}),
    "roc-bert": _classifier(
        "RoCBert",
        pronunciation_vocab_size=99,
        shape_vocab_size=99,
        pronunciation_embed_dim=16,
        shape_embed_dim=16,
    ),
    # More decoders.
    "mpt": _causal("Mpt", {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 99, "max_seq_len": 128}),
    "olmo": _causal("Olmo"),
    "olmo3": _causal("Olmo3", sliding_window=8),
    "cohere": _causal("Cohere"),
    "cohere2": _causal("Cohere2", sliding_window=8),
    "smollm3": _causal("SmolLM3"),
    "glm": _causal("Glm", _HEAD_DIM),
    "glm4": _causal("Glm4", _HEAD_DIM),
    "helium": _causal("Helium", _HEAD_DIM),
    "nemotron": _causal("Nemotron"),
    "persimmon": _causal("Persimmon"),
    "codegen": _causal("CodeGen", _GPT2, rotary_dim=8, n_inner=96),
    "biogpt": Entry("BioGptForCausalLM", "BioGptConfig", _DECODER),
    "xglm": _causal(
        "XGLM", {**_DECODER, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 96}
    ),
    "exaone4": _causal("Exaone4", sliding_window=8),
    "seed-oss": _causal("SeedOss", _HEAD_DIM),
    "apertus": _causal("Apertus"),
    "arcee": _causal("Arcee"),
    # Mixtures of experts.
    "qwen2-moe": _causal("Qwen2Moe", _MOE),
    "qwen3-moe": _causal("Qwen3Moe", _MOE, head_dim=16),
    "olmoe": _causal("Olmoe", _MOE),
    "granitemoe": _causal("GraniteMoe", _MOE),
    "phimoe": _causal("Phimoe", _MOE),
    "deepseek-v3": _causal(
        "DeepseekV3",
        _MOE,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        num_key_value_heads=4,
    ),
    "dots1": _causal(
        "Dots1",
        _MOE,
        n_shared_experts=1,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
    ),
    "ernie4.5-moe": _causal("Ernie4_5_Moe", _MOE, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1),
    # More encoder-decoders.
    "umt5": _seq2seq("UMT5", _T5),
    "blenderbot": _seq2seq("Blenderbot"),
    "blenderbot-small": _seq2seq("BlenderbotSmall"),
    "m2m100": _seq2seq("M2M100"),
    "plbart": _seq2seq("PLBart"),
    # More images.
    "dinov2-registers": _vision("Dinov2WithRegisters"),
    "vit-msn": _vision("ViTMSN"),
    "data2vec-vision": _vision("Data2VecVision", use_relative_position_bias=True),
    "swinv2": _vision(
        "Swinv2",
        {},
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "convnextv2": _vision("ConvNextV2", {}, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "mobilenet-v1": _vision("MobileNetV1", {}, depth_multiplier=0.25, min_depth=8, image_size=64),
    "bit": _vision(
        "Bit", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4, image_size=32
    ),
    "poolformer": _vision(
        "PoolFormer",
        {},
        image_size=64,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_encoder_blocks=2,
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
    ),
    "segformer": _vision("Segformer", _PYRAMID),
    "mobilevit": _vision(
        "MobileViT",
        {},
        image_size=64,
        hidden_sizes=[24, 32, 40],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64],
        num_attention_heads=2,
    ),
    "efficientnet": _vision(
        "EfficientNet", {}, image_size=64, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320
    ),
    "focalnet": _vision(
        "FocalNet", {}, image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32]
    ),
    "siglip": Entry(
        "SiglipForImageClassification",
        "SiglipConfig",
        {
            "vision_config": {**_TOWER, "image_size": 32, "patch_size": 8},
            "text_config": {**_TOWER, "vocab_size": 99, "max_position_embeddings": 64},
        },
    ),
    "hiera": _vision(
        "Hiera",
        {},
        image_size=[32, 32],
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 2],
        patch_size=[3, 3],
        patch_stride=[2, 2],
        patch_padding=[1, 1],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        masked_unit_attention=[True, False],
        num_query_pool=1,
    ),
    # More sound.
    "wavlm": _classifier("WavLM", _WAVE),
    "unispeech": _classifier("UniSpeech", _WAVE),
    "unispeech-sat": _classifier("UniSpeechSat", _WAVE),
    "sew": _classifier("SEW", {**_WAVE, "squeeze_factor": 2}),
    "data2vec-audio": _classifier(
        "Data2VecAudio", {**_WAVE, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2}
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
