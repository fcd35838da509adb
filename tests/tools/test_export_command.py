"""`fuseline export` as a user meets it: real processes, exit codes, progress, plugins and messages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from shell import fuseline

from fuseline.tools.campaigns import zoo

MODELS = """import torch


class Moody(torch.nn.Module):
    def forward(self, features):
        if features.sum() > 0:
            return features
        return -features


class Lopsided(torch.nn.Module):
    def forward(self, features):
        return torch.linalg.qr(features).R


def moody():
    return Moody(), {"features": torch.randn(2, 5)}


def lopsided():
    return Lopsided(), {"features": torch.randn(2, 5, 5)}
"""

FAMILIES = """from fuseline.exporters import Family, register_family


@register_family
class Steady(Family):
    model_types = ("bert",)
    disabled = {"hidden_dropout_prob": 0.0}
"""


def export(*words: object, code: int, cwd: Path) -> subprocess.CompletedProcess[str]:
    return fuseline("export", *words, code=code, cwd=cwd, COLUMNS="300", TMPDIR=str(cwd))


def test_code_that_cannot_be_traced_is_one_message_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    done = export("models:moody", "-o", "out.onnx", code=2, cwd=tmp_path)
    message = done.stderr.strip()
    assert "Moody cannot be exported: its Python code branches on the content of a tensor" in message
    assert "models.py:6" in message
    assert "torch.where" in message
    assert "Traceback" not in done.stdout + done.stderr
    assert len(message.splitlines()) <= 3
    (log,) = tmp_path.glob("fuseline-export-*.log")
    assert log.name in message
    assert "Traceback" in log.read_text()
    assert not (tmp_path / "out.onnx").exists()


def test_an_operator_without_translation_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    done = export("models:lopsided", "-o", "out.onnx", code=2, cwd=tmp_path)
    assert "Lopsided cannot be exported: ONNX has no translation for aten.linalg_qr at " in done.stderr
    assert "models.py:13" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3


def test_progress_plugin_checks_and_time_by_phase(tmp_path: Path) -> None:
    zoo.config("bert", dropout=0.1).save_pretrained(tmp_path)
    (tmp_path / "families.py").write_text(FAMILIES)
    words = ("config.json", "-o", "out.onnx", "--task", "text-classification", "--train")
    done = export(*words, "--plugin", "families.py", code=0, cwd=tmp_path)
    phases = ["tracing with torch.export", "translating to ONNX", "checking against torch", "differentiating"]
    places = [done.stdout.index(phase) for phase in phases]
    assert places == sorted(places)
    assert "hidden_dropout_prob: switched off" in done.stdout
    assert "gradients against torch" in done.stdout
    for phase in ("load", "trace", "translate", "name", "check", "gradients"):
        assert f"{phase} " in done.stdout.split("seconds: ")[1]
    facts = json.loads(export(*words, "--json", "--no-gradients", code=0, cwd=tmp_path).stdout)
    assert set(facts["graphs"]["out.onnx"]["origin"]["timings"]) >= {"load", "trace", "translate", "check"}
