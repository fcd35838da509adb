"""The direction of imports: tools → exporters, passes → kernels → engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "engine": {"engine"},
    "kernels": {"engine", "kernels"},
    "passes": {"engine", "kernels", "passes"},
    "exporters": {"engine", "kernels", "exporters"},
    "tools": {"engine", "kernels", "passes", "exporters", "tools"},
}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_direction(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        parts = {name.split(".")[1] for name in imported(path) if name.startswith("fuseline.")}
        wrong = (parts & set(ALLOWED)) - ALLOWED[folder]
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_what_is_shipped_needs_nothing_that_is_not() -> None:
    left_out = ("fuseline.tools.benchmarks", "fuseline.tools.campaigns")
    for folder in ALLOWED:
        for path in (ROOT / folder).rglob("*.py"):
            if not {"benchmarks", "campaigns"} & set(path.relative_to(ROOT).parts):
                wrong = [name for name in imported(path) if name.startswith(left_out)]
                assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_no_cycle_between_groups_of_passes() -> None:
    groups = [p for p in sorted((ROOT / "passes").iterdir()) if (p / "__init__.py").is_file()]
    needs: dict[str, set[str]] = {}
    for group in groups:
        names = {name.split(".")[2] for f in group.rglob("*.py") for name in imported(f) if _is_grouped(name)}
        needs[group.name] = (names & {g.name for g in groups}) - {group.name}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the cycle


def _is_grouped(name: str) -> bool:
    return name.startswith("fuseline.passes.")


def test_inference_needs_no_pass_of_training() -> None:
    from fuseline.engine.pipeline import Pipeline, ready_pipelines

    for name in ready_pipelines():
        if name.startswith(("inference", "quantize")):
            modules = {type(p).__module__ for p in Pipeline.resolve(name).passes()}
            assert not [m for m in modules if m.startswith("fuseline.passes.training")], name


def test_importing_the_face_is_light() -> None:
    code = "import sys, fuseline; fuseline.Pipeline; fuseline.Model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
