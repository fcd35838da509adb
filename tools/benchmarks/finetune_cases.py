"""What `bench-finetune` trains: models as people take them, on real comments, padded as people pad."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from fuseline.tools.demo import minilm, offensive_texts
from fuseline.tools.trainer.collators import BucketingCollator
from fuseline.tools.trainer.text_data import balanced, encode, read_texts

__all__ = ["CASES", "LONGEST", "PADDINGS", "FinetuneCase", "tokenizer"]

LONGEST = 128
PADDINGS = ("to 128", "longest", "grouped")
"""All texts as long as the common scripts make them; as the longest of the batch; batches of like length."""

Example = dict[str, Any]


@dataclass(frozen=True)
class FinetuneCase:
    """A model, what its examples are made of, and which collator of transformers puts them together."""

    name: str
    model: str
    config: str
    collator: str
    settings: dict[str, Any] = field(default_factory=dict)
    collating: dict[str, Any] = field(default_factory=dict)
    examples: Callable[[Example, Any], Example] = lambda example, tokenizer: example
    batch: int = 16
    paddings: tuple[str, ...] = PADDINGS
    every_contender: bool = False
    """Whether those that take minutes to get ready are measured too, unless contenders are named."""

    def build(self, attention: str) -> Any:
        """The model with its own dropout, its weights the same at every call."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            kind = getattr(transformers, self.model)
            if not self.config:
                return kind.from_pretrained(minilm(), num_labels=2, attn_implementation=attention)
            config = getattr(transformers, self.config)(**self.settings)
            config.use_cache = False
            config._attn_implementation = attention
            return kind(config)

    def data(self, count: int, seed: int = 1) -> list[Example]:
        if self.config == "ViTConfig":
            draw = torch.Generator().manual_seed(seed)
            return [
                {"pixel_values": torch.randn(3, 224, 224, generator=draw), "labels": i % 2}
                for i in range(count)
            ]
        texts = balanced(read_texts(offensive_texts(), label="is_offensive"), count, seed=seed)
        encoded = encode(texts, tokenizer(), max_length=LONGEST)
        random.Random(seed).shuffle(encoded)
        return [self.examples(example, tokenizer()) for example in encoded]

    def collate(self, padding: str) -> Any:
        if not self.collator:
            return transformers.default_data_collator
        made = getattr(transformers, self.collator)(tokenizer(), **self.collating)
        return BucketingCollator(made, (LONGEST,)) if padding == "to 128" else made


def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(minilm())


def _tokens(example: Example, tokenizer: Any) -> Example:
    """Which tokens go on with a word: labels that real text has by itself."""
    pieces = tokenizer.convert_ids_to_tokens(example["input_ids"])
    return {**_text(example, tokenizer), "labels": [int(piece.startswith("##")) for piece in pieces]}


def _text(example: Example, _tokenizer: Any) -> Example:
    return {name: example[name] for name in ("input_ids", "attention_mask")}


def _halves(example: Example, tokenizer: Any) -> Example:
    """The first half of a text, to be followed by the second."""
    half = (len(example["input_ids"]) + 1) // 2
    text = _text(example, tokenizer)
    return {n: v[:half] for n, v in text.items()} | {"labels": text["input_ids"][half:] or [0]}


def _bert(layers: int, width: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "vocab_size": 30522,
    }


_BASE = _bert(12, 768)
_ROBERTA = {**_BASE, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 0}
_DISTILBERT = {"vocab_size": 30522}
_GPT2 = {"vocab_size": 30522, "n_layer": 12, "n_embd": 768, "n_head": 12}
_LLAMA = {
    "vocab_size": 30522,
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "pad_token_id": 0,
}
_T5 = {
    "vocab_size": 30522,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "decoder_start_token_id": 0,
}
_VIT = {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
_PADDING = "DataCollatorWithPadding"
_LANGUAGE = "DataCollatorForLanguageModeling"
_CAUSAL = {"mlm": False}
_CLASSES = "ForSequenceClassification"

CASES = (
    FinetuneCase("minilm", f"AutoModel{_CLASSES}", "", _PADDING, every_contender=True),
    FinetuneCase("one-text", f"AutoModel{_CLASSES}", "", _PADDING, batch=1, paddings=("longest",)),
    FinetuneCase("bert-base", f"Bert{_CLASSES}", "BertConfig", _PADDING, _BASE),
    FinetuneCase("roberta-base", f"Roberta{_CLASSES}", "RobertaConfig", _PADDING, _ROBERTA),
    FinetuneCase("distilbert", f"DistilBert{_CLASSES}", "DistilBertConfig", _PADDING, _DISTILBERT),
    FinetuneCase(
        "bert-base-tokens",
        "BertForTokenClassification",
        "BertConfig",
        "DataCollatorForTokenClassification",
        _BASE,
        examples=_tokens,
    ),
    FinetuneCase("bert-base-mlm", "BertForMaskedLM", "BertConfig", _LANGUAGE, _BASE, examples=_text),
    FinetuneCase("gpt2", "GPT2LMHeadModel", "GPT2Config", _LANGUAGE, _GPT2, _CAUSAL, _text, 8),
    FinetuneCase("llama", "LlamaForCausalLM", "LlamaConfig", _LANGUAGE, _LLAMA, _CAUSAL, _text, 8),
    FinetuneCase(
        "t5-small",
        "T5ForConditionalGeneration",
        "T5Config",
        "DataCollatorForSeq2Seq",
        _T5,
        examples=_halves,
    ),
    FinetuneCase("vit", "ViTForImageClassification", "ViTConfig", "", _VIT, batch=8, paddings=("longest",)),
)
