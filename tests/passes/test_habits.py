"""Habits of passes: declared in one way, nodes made by the Builder, types and shapes inferred by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuseline.tools.commands.new_pass import _PASS

ROOT = Path(__file__).parents[2]
PASSES = sorted((ROOT / "passes").rglob("*.py"))
DECLARED = {"name", "phase", "produces", "requires", "forbids", "ensures", "invalidates"}
# File → why it writes nodes, types or shapes itself.
BY_HAND = {
    "passes/folding/evaluate.py": "a node is run alone, in a model of its own",
    "passes/folding/infer_shapes.py": "writing down what was inferred is what the pass does",
    "passes/quantization/quantize_qdq.py": "an input is as long as there turn out to be sites",
    "passes/training/drop_unused_results.py": "a result that is left out has no name, type or shape",
}


def annotated(tree: ast.AST) -> list[str]:
    """What classes declare with an annotation that the base class has given already."""
    return [
        item.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and item.target.id in DECLARED
    ]


def by_hand(tree: ast.AST) -> Iterator[str]:
    """Nodes that are written without a Builder, and types and shapes that are set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ir.node", "ir.Node"):
            yield f"line {node.lineno}: {ast.unparse(node.func)}(…)"
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for part in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(part, ast.Attribute) and part.attr in ("type", "shape"):
                    yield f"line {node.lineno}: {ast.unparse(part)} = …"


@pytest.mark.parametrize("folder", ["passes", "docs/gallery"])
def test_declarations_are_written_one_way(folder: str) -> None:
    found = {str(p): annotated(ast.parse(p.read_text())) for p in (ROOT / folder).rglob("*.py")}
    assert not {path: names for path, names in found.items() if names}


def test_the_template_is_written_the_same_way() -> None:
    assert not annotated(ast.parse(_PASS.format(name="fuse-example", class_="FuseExample")))


def test_passes_build_with_the_builder() -> None:
    found = {str(p.relative_to(ROOT)): list(by_hand(ast.parse(p.read_text()))) for p in PASSES}
    written = {path for path, lines in found.items() if lines}
    assert written <= set(BY_HAND), [f"{path}: {found[path]}" for path in written - set(BY_HAND)]
    assert set(BY_HAND) <= written, "an exception that is no longer needed"


def test_what_is_by_hand_is_found() -> None:
    code = ["ir.node('Relu', [x])", "value.type = kind", "a.name, a.shape = name, shape"]
    found = sorted(by_hand(ast.parse("\n".join(code))))
    assert [line.split(":")[0] for line in found] == ["line 1", "line 2", "line 3"]
    assert annotated(ast.parse("class P:\n    name: str = 'p'")) == ["name"]
