"""Small models, tokenizers and data for the example scripts: made here, so that nothing is fetched."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

__all__ = ["ROWS", "make_model", "write_data"]

ROWS = 48
_ANIMALS = ("cat", "dog", "bird", "horse", "mouse", "fish")
_VERBS = ("sees", "likes", "hunts", "follows", "hears")
_PLACES = ("home", "town", "woods", "garden", "river")
#: Another language, as far as a model can tell.
_GERMAN = {word: f"{word[::-1]}en" for word in (*_ANIMALS, *_VERBS, *_PLACES)}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "</s>")
_COMMON = {"vocab_size": 96, "pad_token_id": 0}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def _sentences(seed: int) -> list[tuple[str, str, str, str]]:
    """Who does what to whom, and where; of changing length, so that batches are padded."""
    draw = random.Random(seed)
    return [
        (draw.choice(_ANIMALS), draw.choice(_VERBS), draw.choice(_ANIMALS), draw.choice(_PLACES))
        for _ in range(ROWS)
    ]


def _text(who: str, does: str, whom: str, where: str) -> str:
    near = f" near the {where}" if len(where) > 4 else ""
    return f"the {who} {does} the {whom}{near}"


def make_model(architecture: str, folder: Path) -> None:
    """A model without dropout and the tokenizer that goes with it, as `from_pretrained` takes them."""
    torch.manual_seed(5)
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "bert": (transformers.BertForMaskedLM, {**_BERT, **_NO_DROPOUT}),
        "gpt2": (
            transformers.GPT2LMHeadModel,
            {
                "n_embd": 32,
                "n_layer": 2,
                "n_head": 2,
                "resid_pdrop": 0.0,
                "embd_pdrop": 0.0,
                "attn_pdrop": 0.0,
            }
            | {"bos_token_id": 2, "eos_token_id": 5},
        ),
        "t5": (
            transformers.T5ForConditionalGeneration,
            {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
            | {"decoder_start_token_id": 0, "eos_token_id": 5},
        ),
    }
    kind, settings = kinds[architecture]
    kind(kind.config_class(**_COMMON, **settings)).save_pretrained(folder)
    _tokenizer(architecture).save_pretrained(folder)


def _tokenizer(architecture: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    plain = sorted({"the", "near", "who", "does", "what", "?", *_GERMAN, *_GERMAN.values()})
    vocabulary = {word: i for i, word in enumerate((*_SPECIAL, *plain))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    cls, sep, end = (vocabulary[token] for token in ("[CLS]", "[SEP]", "</s>"))
    if architecture == "bert":
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
        )
    elif architecture == "t5":
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)]
        )
    kind: Any = transformers.PreTrainedTokenizerFast
    return kind(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="</s>",
        model_max_length=64,
    )


def write_data(task: str, folder: Path) -> tuple[Path, Path]:
    """The files for training and for evaluation, in the form that the task's script reads."""
    kind = {"classification": "csv", "mlm": "txt", "clm": "txt"}.get(task, "json")
    files = folder / f"train.{kind}", folder / f"validation.{kind}"
    for seed, file in enumerate(files):
        rows = _sentences(seed)
        if kind == "txt":
            file.write_text("".join(_text(*row) + "\n" for row in rows), encoding="utf-8")
        elif kind == "csv":
            with file.open("w", encoding="utf-8", newline="") as out:
                lines = [(_text(*row), int(row[3] in ("woods", "river"))) for row in rows]
                csv.writer(out).writerows([("sentence", "label"), *lines])
        else:
            file.write_text(_json(task, rows), encoding="utf-8")
    return files


def _json(task: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    if task == "qa":
        return json.dumps({"data": [_question(i, row) for i, row in enumerate(rows)]})
    made = [_tagged(row) if task == "ner" else _translated(row) for row in rows]
    return "".join(json.dumps(row) + "\n" for row in made)


def _tagged(row: tuple[str, str, str, str]) -> dict[str, Any]:
    words = _text(*row).split()
    tags = ["B-ANIMAL" if w in _ANIMALS else "B-PLACE" if w in _PLACES else "O" for w in words]
    return {"words": words, "ner": tags}


def _translated(row: tuple[str, str, str, str]) -> dict[str, Any]:
    english = _text(*row)
    return {"translation": {"en": english, "de": " ".join(_GERMAN.get(w, w) for w in english.split())}}


def _question(number: int, row: tuple[str, str, str, str]) -> dict[str, Any]:
    context = _text(*row)
    answer = {"text": [row[2]], "answer_start": [context.rindex(row[2])]}
    return {"id": str(number), "context": context, "question": f"what does the {row[0]} ?", "answers": answer}
