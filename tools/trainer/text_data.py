"""Text from CSV, TSV, JSON or JSON lines as training examples."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuseline.engine.errors import FuselineError, did_you_mean

__all__ = ["Texts", "balanced", "encode", "read_texts", "split"]

Example = dict[str, Any]


@dataclass(frozen=True)
class Texts:
    """Texts with the number of their label; `labels` are the labels' own names in that order."""

    texts: list[str]
    targets: list[int]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Iterable[int]) -> Texts:
        chosen = list(indices)
        return Texts([self.texts[i] for i in chosen], [self.targets[i] for i in chosen], self.labels)


def read_texts(path: Path, *, text: str = "text", label: str | None = "label") -> Texts:
    """Read a table; without a label column every text has target 0."""
    rows = list(_rows(path))
    if not rows:
        raise FuselineError(f"{path} holds no rows")
    for column in (text, *([label] if label else [])):
        if column not in rows[0]:
            hint = did_you_mean(column, rows[0]) or f"its columns are {', '.join(rows[0])}"
            raise FuselineError(f"{path} has no column {column!r}", hint=hint)
        missing = next((i for i, row in enumerate(rows, 1) if row.get(column) is None), None)
        if missing is not None:
            raise FuselineError(f"{path}, row {missing} has no {column!r}")
    labels = sorted({str(row[label]) for row in rows}) if label else [""]
    number = {name: i for i, name in enumerate(labels)}
    targets = [number[str(row[label])] if label else 0 for row in rows]
    return Texts([str(row[text]) for row in rows], targets, labels)


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    if not path.is_file():
        raise FuselineError(f"there is no file {path}")
    if path.suffix in (".csv", ".tsv"):
        with path.open(newline="") as table:
            yield from csv.DictReader(table, delimiter="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".jsonl":
        with path.open() as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                yield _object(path, f"line {number}", _parsed(path, f"line {number}", line))
    elif path.suffix == ".json":
        rows = _parsed(path, "the file", path.read_text())
        if not isinstance(rows, list):
            raise FuselineError(
                f"{path} holds no list of objects", hint="[{…}, {…}], or one a line in .jsonl"
            )
        for number, row in enumerate(rows, 1):
            yield _object(path, f"entry {number}", row)
    else:
        raise FuselineError(f"{path} is neither .csv, .tsv, .json nor .jsonl")


def _parsed(path: Path, place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FuselineError(f"{path}, {place} is no JSON: {error}") from error


def _object(path: Path, place: str, row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise FuselineError(f"{path}, {place} is no object but {type(row).__name__}")
    return row


def balanced(texts: Texts, count: int, seed: int, longest: int = 400) -> Texts:
    """`count` texts of at most `longest` characters, equally many of each label, in random order."""
    chance = random.Random(seed)
    by_label: dict[int, list[int]] = {}
    for index, (text, target) in enumerate(zip(texts.texts, texts.targets, strict=True)):
        if len(text) <= longest:
            by_label.setdefault(target, []).append(index)
    share = count // len(by_label)
    chosen = [i for found in by_label.values() for i in chance.sample(found, min(share, len(found)))]
    chance.shuffle(chosen)
    return texts.take(chosen)


def split(texts: Texts, held_out: float, seed: int) -> tuple[Texts, Texts]:
    """(training, evaluation) texts."""
    order = list(range(len(texts)))
    random.Random(seed).shuffle(order)
    cut = max(1, round(len(order) * held_out)) if held_out else 0
    return texts.take(order[cut:]), texts.take(order[:cut])


def encode(texts: Texts, tokenizer: Any, *, max_length: int, labelled: bool = True) -> list[Example]:
    """One example per text; the collator pads them batch by batch."""
    encoded = tokenizer(list(texts.texts), truncation=True, max_length=max_length)
    columns: Sequence[str] = [k for k in encoded if k in ("input_ids", "attention_mask", "token_type_ids")]
    examples = [{k: encoded[k][i] for k in columns} for i in range(len(texts))]
    if labelled:
        for example, target in zip(examples, texts.targets, strict=True):
            example["labels"] = target
    return examples
