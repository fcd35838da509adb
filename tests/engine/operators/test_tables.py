"""What is known about operators stands in their records alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx

from fuseline.engine.operators import records

ROOT = Path(__file__).parents[3]
NAMES = {s.name for s in onnx.defs.get_all_schemas_with_history()} | {o.name for o in records()}
AT_LEAST = 3
# File → why its list of operators is no knowledge about them that others could need.
_SUBJECT = "the operators that the pass itself matches, rewrites or writes"
_CHOICE = "what is quantized unless the user says otherwise: a choice, no fact"
ALLOWED = {
    "engine/inputs/sizes.py": "which weights imply the size of an input: a guess, made here alone",
    "engine/patterns/pattern.py": "what a pattern may reach through unless it says otherwise",
    "engine/parameter_steps.py": "classes of its own that are called like operators",
    "passes/cleanup/eliminate_noop_arithmetic.py": _SUBJECT,
    "passes/cleanup/eliminate_zero_state.py": "what leaves zeros zeros on their way to a state",
    "passes/cleanup/merge_reshapes.py": _SUBJECT,
    "passes/fusion/collapse_mask_gather.py": _SUBJECT,
    "passes/fusion/fuse_conv_activation.py": _SUBJECT,
    "passes/fusion/fuse_gemm_activation.py": _SUBJECT,
    "passes/fusion/fuse_rotary.py": _SUBJECT,
    "passes/quantization/convert_precision.py": "what stays in 32 bits by default: a choice, no fact",
    "passes/quantization/fragments/integer.py": _SUBJECT,
    "passes/quantization/fragments/products.py": _SUBJECT,
    "passes/quantization/quantize_qdq.py": _CHOICE,
    "passes/quantization/quantize_static.py": _CHOICE,
    "passes/training/decompose_activations.py": _SUBJECT,
    "passes/training/decompose_normalization.py": _SUBJECT,
    "passes/training/decompose_pooling.py": _SUBJECT,
    "passes/training/decompose_reductions.py": _SUBJECT,
    "passes/training/expand_broadcast.py": _SUBJECT,
    "passes/training/expand_where.py": _SUBJECT,
    "passes/training/padding/attention.py": _SUBJECT,
    "tools/quantizer/plan.py": _CHOICE,
}
FOLDERS = ("engine", "kernels", "exporters", "passes", "tools")
# What draws, counts and judges from outside must not take its knowledge from what it judges.
OUTSIDE = ("engine/operators/", "tools/benchmarks/", "tools/campaigns/")


def lists(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """(line, operator names) of each literal that names several operators."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
            parts = list(node.elts)
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            found = [w for w in words if w in NAMES]
            if len(found) >= AT_LEAST and len(found) > len(words) // 2:
                yield node.lineno, found
            continue
        else:
            continue
        inner = [e for part in parts for e in (part.elts if isinstance(part, ast.Tuple) else [part])]
        found = [e.value for e in inner if isinstance(e, ast.Constant) and e.value in NAMES]
        if len(found) >= AT_LEAST:
            yield node.lineno, found


def tables(folder: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith(OUTSIDE):
            continue
        for line, operators in lists(ast.parse(path.read_text())):
            found.setdefault(name, []).append(f"{name}:{line} {' '.join(operators)}")
    return found


def test_there_is_no_second_table() -> None:
    found = {name: lines for folder in FOLDERS for name, lines in tables(folder).items()}
    second = [line for name, lines in found.items() if name not in ALLOWED for line in lines]
    assert not second, "put this into the records of engine/operators:\n" + "\n".join(second)
    assert set(ALLOWED) <= set(found), "an exception that is no longer needed"


def test_the_design_page_lists_what_remains() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    assert not [name for name in ALLOWED if f"`{name}`" not in page]


def test_lists_are_found() -> None:
    dictionary = '{"Add": 1, "Mul": 2, "Sub": 3}'
    code = [dictionary, '("Relu", "Tanh", "Erf")', '"Add Sub Mul".split()', '["Add"]']
    assert [line for line, _ in lists(ast.parse("\n".join(code)))] == [1, 2, 3]
