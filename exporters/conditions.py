"""What a trace took for granted about sizes.

Where a model's Python decides by a size (`if len(x) > 8`), the graph has the one branch that was taken. Torch
notes each such decision; here they become conditions on the graph's axes, such as "batch <= 8".
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fuseline.exporters.inputs import Input

__all__ = ["conditions_of", "holds", "only_excludes_one"]

_SIZE = re.compile(r"L\['values'\]\[(\d+)\]\.size\(\)\[(\d+)\]")
_ONE_EXCLUDED = re.compile(r"(\w+) (?:>|!=) 1")
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS = {"min": min, "max": max}


def conditions_of(program: torch.export.ExportedProgram, inputs: Sequence[Input]) -> tuple[str, ...]:
    """The conditions under which the program is the model; what equal axes make true is left out."""

    def named(found: re.Match[str]) -> str:
        return str(inputs[int(found[1])].axes[int(found[2])])

    made = (_SIZE.sub(named, code) for code in program._guards_code)  # type: ignore[attr-defined]
    return tuple(condition for condition in dict.fromkeys(made) if not _says_nothing(condition))


def only_excludes_one(condition: str) -> str | None:
    """The axis of a condition that nothing but size 1 breaks."""
    found = _ONE_EXCLUDED.fullmatch(condition)
    return found[1] if found is not None else None


def holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a batch of these sizes takes the traced branch; what cannot be told does not hold."""
    try:
        return bool(_value(_parsed(condition), sizes))
    except (ArithmeticError, KeyError, SyntaxError, TypeError):
        return False


@functools.lru_cache(maxsize=1024)
def _parsed(condition: str) -> ast.expr:
    return ast.parse(condition, mode="eval").body


def _value(node: ast.AST, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, sizes))
    if isinstance(node, ast.BoolOp):
        return (all if isinstance(node.op, ast.And) else any)(_value(part, sizes) for part in node.values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        compared = (_value(node.left, sizes), _value(node.comparators[0], sizes))
        return _OPERATORS[type(node.ops[0])](*compared)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _FUNCTIONS[node.func.id](*(_value(given, sizes) for given in node.args))
    raise KeyError(type(node).__name__)


def _says_nothing(condition: str) -> bool:
    """Axes of one name are equal anyway."""
    left, _, right = condition.partition(" == ")
    return left == right
