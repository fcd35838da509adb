"""Export a model of more than 2 GB and print the peak memory: the weights are never held twice.

    python -m fuseline.tools.campaigns.large_export [OUTPUT.onnx] [--layers 2]

The model is a Llama with random weights; the file is written to a temporary folder unless OUTPUT is given.
Exit 1 when the export adds half of the weights or more to the peak.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuseline.tools.measuring import resident

__all__ = ["Memory", "main", "measure"]

_GIB = 2**30
_LIMIT = 0.5


@dataclass(frozen=True)
class Memory:
    """Bytes of the weights, of the files written, and of the process's peak before and after the export."""

    weights: int
    graph: int
    data: int
    before: int
    after: int
    seconds: dict[str, float]

    @property
    def ok(self) -> bool:
        return self.after - self.before < _LIMIT * self.weights


def measure(output: Path, layers: int) -> Memory:
    """Build, export with loss, save. Without the check: what running a model takes is another matter."""
    from fuseline.exporters import export

    module = _build(layers)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    before = resident.peak()
    model = export(module, train=True, check=False)
    model.save(output)
    data = output.with_name(f"{output.name}.data").stat().st_size
    return Memory(
        weights, output.stat().st_size, data, before, resident.peak(), dict(model.facts.origin.timings)
    )


def _build(layers: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=128,
    )
    # Built without memory first, so that initialisation does not itself need twice the weights.
    with torch.device("meta"):
        build: Any = LlamaForCausalLM  # transformers does not type its constructors
        module = build(config)
    module = module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.02, 0.02, generator=generator)
    module.model.rotary_emb = type(module.model.rotary_emb)(config)
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the peak stayed within the limit, 1 otherwise."""
    from fuseline.tools.console import console

    parser = argparse.ArgumentParser(description="Peak memory of exporting a model over 2 GB.")
    parser.add_argument("output", nargs="?", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.output or Path(folder) / "large.onnx", options.layers)
    console.print(
        f"weights {found.weights / _GIB:.2f} GiB; graph {found.graph / 2**20:.1f} MiB, external data "
        f"{found.data / _GIB:.2f} GiB; peak memory {found.before / _GIB:.2f} GiB before and "
        f"{found.after / _GIB:.2f} GiB after the export"
    )
    console.print("seconds: " + ", ".join(f"{phase} {spent:.1f}" for phase, spent in found.seconds.items()))
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
