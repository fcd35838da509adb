"""The models that `bench-training` trains: realistic widths, dense batches, no dropout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from fuseline.tools.campaigns import zoo

__all__ = ["CASES", "TrainingCase"]


@dataclass(frozen=True)
class TrainingCase:
    """One configuration and the ratio to the best torch that it has to reach."""

    name: str
    model: str
    config: str
    goal: float
    batch: int
    tokens: int
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self, attention: str = "eager") -> Any:
        """The model in training mode, its weights the same at every call."""
        config = getattr(transformers, self.config)(**self.settings)
        for name, value in list(vars(config).items()):
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
        config.use_cache = False
        config._attn_implementation = attention
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return getattr(transformers, self.model)(config).train()

    def inputs(self, model: Any) -> dict[str, Tensor]:
        """A batch without padding; every token of a language model is labelled, 15 % of a masked one."""
        made = zoo.batch(model, batch=self.batch, seq=self.tokens)
        for name in ("attention_mask", "decoder_attention_mask"):
            if name in made:
                made[name] = torch.ones_like(made[name])
        labels = made.get("labels")
        if labels is not None and labels.dim() == 2:
            rng = torch.Generator().manual_seed(1)
            made["labels"] = torch.randint(5, self.vocabulary, labels.shape, generator=rng)
            if "Masked" in self.model:
                kept = torch.rand(labels.shape, generator=rng) < 0.15
                made["labels"] = made["labels"].masked_fill(~kept, -100)
        return made

    @property
    def vocabulary(self) -> int:
        return int(self.settings.get("vocab_size", 2))


def _bert(width: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": 4,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "vocab_size": 30522,
    }


def _gpt2(width: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": 4, "n_head": width // 64, "vocab_size": 50257}


_BLOOM = {"hidden_size": 512, "n_layer": 4, "n_head": 8, "vocab_size": 32000}
_T5 = {
    "d_model": 256,
    "d_kv": 64,
    "d_ff": 1024,
    "num_layers": 4,
    "num_heads": 4,
    "vocab_size": 32128,
    "decoder_start_token_id": 0,
}
_VIT = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536}

CASES = (
    TrainingCase("bert-4x256", "BertForSequenceClassification", "BertConfig", 1.25, 8, 128, _bert(256)),
    TrainingCase("bert-4x768", "BertForSequenceClassification", "BertConfig", 1.12, 8, 128, _bert(768)),
    TrainingCase("bert-mlm-4x256", "BertForMaskedLM", "BertConfig", 1.5, 8, 128, _bert(256)),
    TrainingCase("gpt2-4x256", "GPT2LMHeadModel", "GPT2Config", 1.05, 4, 256, _gpt2(256)),
    TrainingCase("gpt2-4x768", "GPT2LMHeadModel", "GPT2Config", 1.05, 4, 256, _gpt2(768)),
    TrainingCase("bloom-4x512", "BloomForCausalLM", "BloomConfig", 1.05, 4, 256, _BLOOM),
    TrainingCase("t5-4x256", "T5ForConditionalGeneration", "T5Config", 1.05, 8, 128, _T5),
    TrainingCase("vit-4x384", "ViTForImageClassification", "ViTConfig", 1.05, 8, 16, _VIT),
)
