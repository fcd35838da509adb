"""Inference exports on the newest stock onnxruntime, in an environment of its own, against torch.

    python -m fuseline.tools.campaigns.stock_export [NAME …] [--folder .venv-stock]

Each model is exported at opset 18, checked here on ONNX Runtime training, then run there on the same inputs.
Exit 1 when an output differs from torch's by more than the export's own tolerance.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuseline.tools.campaigns import stock
from fuseline.tools.console import console

__all__ = ["main"]

DEFAULT = ("bert", "gpt2", "llama", "t5", "whisper", "vit", "resnet", "clip", "wav2vec2")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every model agrees with torch, 1 otherwise."""
    from fuseline.exporters.verify import OUTPUT_TOLERANCE

    parser = argparse.ArgumentParser(description="Inference exports on the newest onnxruntime.")
    parser.add_argument("names", nargs="*", default=list(DEFAULT), help="architectures of the zoo")
    parser.add_argument("--folder", type=Path, default=stock.DEFAULT, help="the other environment")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            _write(name, Path(folder))
        found = stock.run_there(options.folder, [stock.__file__, folder])
    limit = OUTPUT_TOLERANCE["float32"]
    different = 0
    for name, (apart, scale) in found["models"].items():
        difference = apart / max(1.0, scale)
        different += difference > limit
        verdict = "ok" if difference <= limit else "different"
        console.print(f"{name}: {difference:.1e} from torch on onnxruntime {found['onnxruntime']}: {verdict}")
    return 1 if different else 0


def _write(name: str, folder: Path) -> None:
    """The graph, and inputs with torch's outputs on every checked shape."""
    from fuseline.exporters import export
    from fuseline.exporters.planning import make_plan
    from fuseline.exporters.sources import resolve
    from fuseline.tools.campaigns import zoo

    source = resolve(zoo.build(name).eval())
    export(source).save(folder / f"{name}.onnx")
    plan = make_plan(source, train=False)
    for index, batch in enumerate(plan.checked()):
        inputs = {i.name: value.numpy() for i, value in zip(plan.inputs, batch, strict=True)}
        outputs = {key: value.numpy() for key, value in plan.expected(batch).items()}
        stock.save_batch(folder, name, index, inputs, outputs)


if __name__ == "__main__":
    sys.exit(main())
