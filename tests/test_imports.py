"""The direction of imports: tools → exporters, passes → kernels → engine."""

from __future__ import annotations

import ast
import subprocess
import sys
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


def test_importing_the_face_is_light() -> None:
    code = "import sys, fuseline; fuseline.Pipeline; fuseline.Model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
