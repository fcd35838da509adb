"""What `bench-memory` compares: models, and ways to train them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuseline.tools.benchmarks.training_cases import CASES, TrainingCase

__all__ = ["ARENA", "DEFAULT", "MEMORY_CASES", "OURS", "RACES", "TORCH", "counted_as"]

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
_SMALLER = "hoist-shapes,sparse-embedding-gradient,order-for-memory{sizes=AT}"
_CHUNKED = f"chunk-loss,{_SMALLER}"
_EARLY = "release-early,sparse-embedding-gradient"

#: Our plans: passes behind the pipeline `training` and the optimizer.
OURS = {
    "plain": "",
    "chunked": _CHUNKED,
    "cheap": f"{_SMALLER},recompute{{what=cheap,sizes=AT}}",
    "layers": f"{_SMALLER},recompute{{what=layers,sizes=AT}}",
    "early": f"{_SMALLER},{_EARLY}",
    "cheap-early": f"{_SMALLER},recompute{{what=cheap,sizes=AT}},{_EARLY}",
    "layers-early": f"{_SMALLER},recompute{{what=layers,sizes=AT}},{_EARLY}",
    "most-early": f"{_SMALLER},recompute{{what=most,sizes=AT}},{_EARLY}",
    "chunked-cheap-early": f"{_CHUNKED},recompute{{what=cheap,sizes=AT}},{_EARLY}",
    "chunked-layers-early": f"{_CHUNKED},recompute{{what=layers,sizes=AT}},{_EARLY}",
}

#: The step as it comes, in one block that is kept; and with the runtime's arena in place of it.
DEFAULT, ARENA = "default", "arena"

#: Who is timed against whom; all but those of torch and the arena run in a block.
RACES = {
    "bert-4x256": [ARENA, DEFAULT, "cheap-early", "layers-early", "sdpa"],
    "vit-4x384": [ARENA, DEFAULT, "cheap-early", "layers-early", "sdpa"],
    "gpt2-4x256": [ARENA, DEFAULT, "chunked", "chunked-cheap-early", "chunked-layers-early", "eager"],
    "t5-4x256": [ARENA, DEFAULT, "chunked", "eager"],
    "bert-12x768": [ARENA, DEFAULT, "cheap-early", "layers-early", "most-early", "checkpointing"],
}


def counted_as(contender: str) -> str:
    """The peak of a contender: of one step; with an arena, which is kept, from before the first."""
    return "held" if contender == ARENA else "bytes"
