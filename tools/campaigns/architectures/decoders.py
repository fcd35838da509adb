"""Decoders of text, dense and with experts."""

from __future__ import annotations

from typing import Any

from fuseline.tools.campaigns.architectures.entries import BASE, Entry, Settings, classifier

__all__ = ["DECODERS"]

_DECODER: Settings = {
    **BASE,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEAD_DIM: Settings = {**_DECODER, "head_dim": 16}
_MOE: Settings = {
    **_DECODER,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
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


def _causal(model: str, settings: Settings = _DECODER, **extra: Any) -> Entry:
    return Entry(f"{model}ForCausalLM", f"{model}Config", {**settings, **extra})


DECODERS: dict[str, Entry] = {
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
    "mamba": _causal("Mamba", BASE, state_size=8, conv_kernel=4, pad_token_id=0, use_mambapy=False),
    "gpt2-classifier": classifier("GPT2", _GPT2),
    "llama-classifier": classifier("Llama", _DECODER),
    "qwen2-token": Entry("Qwen2ForTokenClassification", "Qwen2Config", _DECODER),
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
}
