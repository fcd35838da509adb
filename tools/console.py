"""How the command line speaks: rich on a terminal, plain lines in a pipe, errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["console", "errors", "fail", "print_json"]

# A pipe has no width of its own: never wrap or truncate what a program may read, tables included.
_WIDE = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 240
# What is printed comes from models and files, where `[rows]` is no style: styled words are made with Text.
console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False, width=_WIDE)
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def fail(message: str) -> None:
    errors.print(Text.assemble(("error:", "bold red"), f" {message}"))
