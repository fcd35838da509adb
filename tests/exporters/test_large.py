"""A model over 2 GB: external data, and never two copies of the weights in memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_export_over_two_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "large.onnx"
    # A process of its own: the peak of this one says nothing.
    command = [sys.executable, "-m", "fuseline.tools.campaigns.large_export", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    before, after = re.findall(r"([\d.]+) GiB before and ([\d.]+) GiB after", text)[0]
    assert float(after) - float(before) < 0.5 * 2
    assert file.with_name("large.onnx.data").stat().st_size > 2 * 2**30
    assert file.stat().st_size < 10 * 2**20
