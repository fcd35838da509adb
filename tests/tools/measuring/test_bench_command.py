"""`fuseline bench`, as a user meets it. No test looks at how long anything took."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from shell import GELU, fuseline, refused

from fuseline.engine.model import Model
from fuseline.tools.measuring import peak, resident
from fuseline.tools.measuring.subject import PLAIN, Subject

FACTORY = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.two(torch.nn.functional.gelu(self.one(x)))


def made():
    torch.manual_seed(0)
    example = {"x": torch.randn(4, 4), "labels": torch.tensor([0, 1, 2, 0])}
    return Net(), example, lambda y, labels: torch.nn.functional.cross_entropy(y, labels)
"""

WRONG = '''from fuseline import Fusion


class Wrong(Fusion):
    """Relu(x) → Neg(x)"""

    name = "wrong"

    def match(self, op, x):
        return op.Relu(x)

    def replace(self, op, x):
        return op.Neg(x)
'''


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    Model.from_text(GELU).save(tmp_path / "gelu.onnx")
    return tmp_path / "gelu.onnx"


def test_a_graph_against_stock_onnxruntime(graph: Path) -> None:
    words = ("bench", graph, "--rounds", 6, "--size", "N=9", "--no-memory", "--svg", graph.parent / "b.svg")
    done = fuseline(*words, "--json", cwd=graph.parent)
    found = json.loads(done.stdout)
    assert found["what"] == "inference"
    assert found["inputs"] == {"x": [9, 4]}
    assert [row["name"] for row in found["contenders"]] == ["fuseline", "onnxruntime"]
    assert found["contenders"][0]["ratio"] is None
    for row in found["contenders"]:
        assert 0 < row["seconds"]["low"] <= row["seconds"]["middle"] <= row["seconds"]["high"]
    texts = [t.text for t in ET.parse(graph.parent / "b.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert {"fuseline", "onnxruntime"} <= set(texts)


def test_what_each_pass_bought(graph: Path) -> None:
    words = ("bench", graph, "--ablate", "--rounds", 6, "--size", "N=9", "--svg", graph.parent / "a.svg")
    found = json.loads(fuseline(*words, "--json", cwd=graph.parent).stdout)
    rows = {row["pass"]: row for row in found["passes"]}
    assert rows["fuse-gelu"]["nodes"] == 4, "without it five nodes stand where one could"
    assert rows["fuse-gelu"]["seconds"]["low"] <= rows["fuse-gelu"]["seconds"]["high"]
    assert rows["eliminate-identity"]["nodes"] == 1
    assert rows["infer-shapes"]["note"] == "the other passes do the same without it"
    assert rows["infer-shapes"]["seconds"] is None
    assert "fuse-gelu" in (graph.parent / "a.svg").read_text()


def test_different_results_are_not_compared(graph: Path) -> None:
    (graph.parent / "wrong.py").write_text(WRONG)
    words = ("bench", graph, "--plugin", "wrong.py", "--pipeline", "wrong", "--rounds", 6, "--no-memory")
    done = fuseline(*words, cwd=graph.parent, code=1)
    assert "fuseline does not compute what onnxruntime does: y:" in done.stderr


def test_what_is_refused(graph: Path) -> None:
    assert "has no loss to train" in refused("bench", graph, "--train")
    told = "there is no contender 'torch'; there are fuseline, onnxruntime"
    assert told in refused("bench", graph, "--contender", "torch")
    assert "the pipeline has no pass 'fuse-gell'" in refused(
        "bench", graph, "--ablate", "--only", "fuse-gell"
    )


@pytest.mark.native
def test_training_of_a_torch_module(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FACTORY)
    words = ("bench", "net:made", "--train", "--rounds", 6, "--no-memory", "--contender", "torch eager")
    done = fuseline(*words, "--batch", 16, cwd=tmp_path)
    assert "one training step on x 16×4, labels 16" in done.stdout
    assert "torch eager" in done.stdout
    assert "onnxruntime" not in done.stdout


@pytest.mark.skipif(not resident.measurable(), reason="the system does not tell a process its peak")
def test_memory_in_a_process_of_its_own(tmp_path: Path) -> None:
    text = "g (float[N,256] x) => (float[N,256] y) { a = Exp(x) b = Tanh(a) y = Mul(a, b) }"
    Model.from_text(f'<ir_version: 8, opset_import: ["" : 17]> {text}').save(tmp_path / "m.onnx")
    subject = Subject(str(tmp_path / "m.onnx"), str(tmp_path / "work"), sizes=("N=40000",))
    subject.prepare()
    found = peak.peak_of(subject, PLAIN)
    assert found is not None
    array = 40000 * 256 * 4
    assert 2 * array < found < 12 * array, "the input, the output and what lies between"
