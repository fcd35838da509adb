"""What `bench-memory` compares: models, and ways to train them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuseline.tools.benchmarks.training_cases import CASES, TrainingCase

__all__ = ["MEMORY_CASES", "OURS", "TORCH"]

_BY_NAME = {case.name: case for case in CASES}
_LLAMA: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 688,
    "vocab_size": 32000,
}
_BERT_BASE = {**_BY_NAME["bert-4x768"].settings, "num_hidden_layers": 12}

MEMORY_CASES = {
    case.name: case
    for case in (
        _BY_NAME["bert-4x256"],
        replace(_BY_NAME["bert-4x768"], name="bert-12x768", settings=_BERT_BASE),
        replace(_BY_NAME["gpt2-4x256"], batch=8, tokens=128),
        _BY_NAME["t5-4x256"],
        _BY_NAME["vit-4x384"],
        TrainingCase("llama-4x256", "LlamaForCausalLM", "LlamaConfig", 1.0, 8, 128, _LLAMA),
    )
}

#: Ways to train with torch: attention, and what is computed again.
TORCH = ("eager", "sdpa", "checkpointing", "compile-1.0", "compile-0.5", "compile-0.2")
#: Our plans: passes behind the pipeline `training` and the optimizer.
OURS = {
    "plain": "",
    "cheap": "recompute{what=cheap,sizes=AT}",
    "layers": "recompute{what=layers,sizes=AT}",
    "early": "release-early",
    "cheap-early": "recompute{what=cheap,sizes=AT},release-early",
    "layers-early": "recompute{what=layers,sizes=AT},release-early",
}
