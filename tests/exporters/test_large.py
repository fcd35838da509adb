"""A model over 2 GB: external data, and never two copies of the weights in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, resource, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from fuseline.exporters import export

torch.set_num_threads(1)
config = LlamaConfig(
    vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=2,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=128,
)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with torch.device("meta"):
    module = LlamaForCausalLM(config)
module = module.to_empty(device="cpu")
with torch.no_grad():
    for parameter in module.parameters():
        parameter.uniform_(-0.02, 0.02)
module.model.rotary_emb = type(module.model.rotary_emb)(config)
weights = sum(p.numel() * p.element_size() for p in module.parameters())
before = peak()
# Without the check: running a model takes memory for what it computes, which is another matter.
model = export(module, train=True, check=False)
model.save(sys.argv[1])
print(json.dumps({"weights": weights, "before": before, "after": peak(), "timings": model.facts["timings"]}))
"""


@pytest.mark.slow
def test_export_over_two_gigabytes(tmp_path: Path) -> None:
    file = tmp_path / "large.onnx"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    data = file.with_name("large.onnx.data").stat().st_size
    sys.stdout.write(
        f"weights {found['weights'] / 2**30:.2f} GiB, file {data / 2**30:.2f} GiB, peak memory "
        f"{found['before'] / 2**30:.2f} GiB before and {found['after'] / 2**30:.2f} GiB after the export; "
        f"seconds {found['timings']}\n"
    )
    assert found["weights"] > 2 * 2**30
    assert data >= found["weights"]
    assert file.stat().st_size < 10 * 2**20
    assert found["after"] - found["before"] < 0.5 * found["weights"]
