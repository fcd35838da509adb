"""The models that `bench-training` trains: realistic widths, dense batches and padded ones."""

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
    #: The lengths of the rows: their median, and how far they spread (of their logarithms); None: no padding.
    lengths: tuple[float, float] | None = None

    def build(self, attention: str = "eager", *, dropout: bool = False) -> Any:
        """The model in training mode, its weights the same at every call; its own dropout, or none."""
        config = getattr(transformers, self.config)(**self.settings)
        for name, value in list(vars(config).items()):
            if not dropout and "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
        config.use_cache = False
        config._attn_implementation = attention
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return getattr(transformers, self.model)(config).train()

    def inputs(self, model: Any) -> dict[str, Tensor]:
        """A batch; every token of a language model is labelled, 15 % of a masked one."""
        made = zoo.batch(model, batch=self.batch, seq=self.tokens)
        for name in ("attention_mask", "decoder_attention_mask"):
            if name in made:
                made[name] = self._mask(made[name])
        labels = made.get("labels")
        if labels is not None and labels.dim() == 2:
            rng = torch.Generator().manual_seed(1)
            made["labels"] = torch.randint(5, self.vocabulary, labels.shape, generator=rng)
            if "Masked" in self.model:
                kept = torch.rand(labels.shape, generator=rng) < 0.15
                made["labels"] = made["labels"].masked_fill(~kept, -100)
        return made

    def _mask(self, mask: Tensor) -> Tensor:
        """Rows of many lengths, as texts are, the longest one as long as the batch."""
        if self.lengths is None:
            return torch.ones_like(mask)
        median, spread = self.lengths
        drawn = torch.randn(len(mask), generator=torch.Generator().manual_seed(3)) * spread
        rows = (median * drawn.exp()).round().clamp(3, mask.shape[1])
        rows[int(rows.argmax())] = mask.shape[1]
        return (torch.arange(mask.shape[1])[None] < rows[:, None]).to(mask.dtype)

    @property
    def vocabulary(self) -> int:
        return int(self.settings.get("vocab_size", 2))


def _bert(width: int, layers: int = 4) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "vocab_size": 30522,
    }


def _gpt2(width: int, layers: int = 4) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": layers, "n_head": width // 64, "vocab_size": 50257}


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


_TEXTS = (30, 0.6)


def _texts(
    size: tuple[int, int], name: str, goal: float, tokens: int, lengths: tuple[float, float] | None
) -> TrainingCase:
    """Classification of texts as people train it, sixteen at a time, some 30 tokens in the median."""
    layers, width = size
    return TrainingCase(
        f"bert-{layers}x{width}-{name}",
        "BertForSequenceClassification",
        "BertConfig",
        goal,
        16 if width < 768 else 8,
        tokens,
        _bert(width, layers),
        lengths,
    )


CASES = (
    TrainingCase("bert-4x256", "BertForSequenceClassification", "BertConfig", 1.25, 8, 128, _bert(256)),
    TrainingCase("bert-4x768", "BertForSequenceClassification", "BertConfig", 1.12, 8, 128, _bert(768)),
    TrainingCase("bert-mlm-4x256", "BertForMaskedLM", "BertConfig", 1.5, 8, 128, _bert(256)),
    TrainingCase("gpt2-4x256", "GPT2LMHeadModel", "GPT2Config", 1.05, 4, 256, _gpt2(256)),
    TrainingCase("gpt2-4x768", "GPT2LMHeadModel", "GPT2Config", 1.05, 4, 256, _gpt2(768)),
    TrainingCase("bloom-4x512", "BloomForCausalLM", "BloomConfig", 1.05, 4, 256, _BLOOM),
    TrainingCase("t5-4x256", "T5ForConditionalGeneration", "T5Config", 1.05, 8, 128, _T5),
    _texts((6, 384), "dense", 1.5, 128, None),
    _texts((6, 384), "padded-to-128", 3.0, 128, _TEXTS),
    _texts((6, 384), "padded-to-longest", 2.0, 72, _TEXTS),
    _texts((6, 384), "grouped-by-length", 1.5, 32, (30, 0.05)),
    _texts((12, 768), "dense", 1.3, 128, None),
    _texts((12, 768), "padded-to-128", 3.0, 128, _TEXTS),
    TrainingCase("bert-mlm-12x768", "BertForMaskedLM", "BertConfig", 2.5, 8, 128, _bert(768, 12)),
    TrainingCase("gpt2-12x768", "GPT2LMHeadModel", "GPT2Config", 1.4, 4, 256, _gpt2(768, 12)),
    TrainingCase("one-short-text", "BertForSequenceClassification", "BertConfig", 1.0, 1, 32, _bert(256)),
    TrainingCase("vit-4x384", "ViTForImageClassification", "ViTConfig", 1.05, 8, 16, _VIT),
)
