"""The command line as tests call it, as a process of its own or inside this one; and a small model for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from fuseline.engine.errors import FuselineError
from fuseline.tools.main import app

__all__ = ["GELU", "fuseline", "refused", "shown"]

GELU = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) <float half = {0.5}, float one = {1.0}, float root = {1.4142135}>
{
    a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  e = Mul(d, half)
    f = Identity(e)   y = Relu(f)
}"""


def fuseline(
    *words: object, code: int = 0, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A process; its exit code is the expected one, and it never shows a traceback."""
    command = [sys.executable, "-m", "fuseline.tools.main", *map(str, words)]
    plain = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=plain)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done


def shown(*words: object) -> str:
    """What it prints, in this process, where nothing is loaded that other tests would see."""
    result = CliRunner().invoke(app, [str(w) for w in words])
    if isinstance(result.exception, FuselineError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: object) -> str:
    """Why it refuses, in this process."""
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert isinstance(result.exception, FuselineError), result.output
    return str(result.exception)
