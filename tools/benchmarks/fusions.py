"""How many fusions each optimiser finds, per pattern and model, and how many nodes remain.

    python -m fuseline.tools.benchmarks.fusions [--only bert,gpt2] [--cache FOLDER] [--json FILE]

The models are the exporters' zoo and third-party transformer files. Rivals: onnxruntime.transformers with all
its model types (the best of them), the settings of optimum's O3 (which drive the same library), and
onnxscript's optimize_for_ort. A matrix product inside an attention node is no fusion of its own, so fused
products are not counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.architectures import Case, zoo_case, zoo_names
from fuseline.tools.benchmarks.rivals import OPTIMIZERS, optimized
from fuseline.tools.console import console

__all__ = ["PATTERNS", "count", "main"]

PATTERNS: dict[str, frozenset[str]] = {
    "attention": frozenset(
        ["Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention", "QAttention"]
    ),
    "norm": frozenset(
        [
            "LayerNormalization",
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "EmbedLayerNormalization",
            "RMSNormalization",
        ]
    ),
    # A sum fused with the normalisation behind it: of a residual, or of embeddings.
    "skip": frozenset(
        ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"]
    ),
    "embed": frozenset(["EmbedLayerNormalization"]),
    "gelu": frozenset(["Gelu", "FastGelu", "BiasGelu", "QuickGelu"]),
    "rotary": frozenset(["RotaryEmbedding"]),
    "convolution": frozenset(["FusedConv"]),
}
RIVALS = [name for name in OPTIMIZERS if name != "fuseline"]


def count(path: Path) -> dict[str, int]:
    """Fused nodes per pattern, and all nodes but constants."""
    nodes = list(Model.load(path).nodes())
    kinds = Counter(node.op_type for node in nodes)
    found = {pattern: sum(kinds[op] for op in ops) for pattern, ops in PATTERNS.items()}
    fast = sum(node.op_type == "FastGelu" and len(node.inputs) == 2 for node in nodes)
    found["bias + gelu"] = kinds["BiasGelu"] + fast
    return {**found, "nodes": sum(kinds.values()) - kinds["Constant"]}


def compare(case: Case, folder: Path) -> dict[str, Any]:
    """Counts of every optimiser; None where it fails."""
    row: dict[str, Any] = {"model": case.name, "before": count(case.path)}
    for name in OPTIMIZERS:
        path = optimized_apart(case, name, folder)
        row[name] = None if path is None else count(path)
    return row


def optimized_apart(case: Case, name: str, folder: Path) -> Path | None:
    """As `optimized`, in a process of its own: a rival's crash must not end the comparison."""
    if name == "fuseline":
        return optimized(case, name, folder)
    process = multiprocessing.get_context("spawn").Process(target=optimized, args=(case, name, folder))
    process.start()
    process.join(timeout=300)
    if process.is_alive():
        process.kill()
    target = folder / f"{case.name}.{name.replace(' ', '-')}.onnx"
    return target if process.exitcode == 0 and target.exists() else None


def verdict(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The share of cells where fuseline finds as many as the best rival, and of models with fewest nodes."""
    cells = held = fewest = 0
    for row in rows:
        ours, others = row["fuseline"], [row[r] for r in RIVALS if row[r] is not None]
        for pattern in (*PATTERNS, "bias + gelu"):
            best = max((o[pattern] for o in others), default=0)
            if best or ours[pattern]:
                cells += 1
                held += ours[pattern] >= best
        fewest += ours["nodes"] <= min((o["nodes"] for o in others), default=ours["nodes"])
    return {"cells": cells, "held": held / max(cells, 1), "fewest nodes": fewest / max(len(rows), 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    rows = []
    for case in _cases(options):
        row = compare(case, options.cache)
        rows.append(row)
        console.print(_line(row), markup=False)
    result = verdict(rows)
    console.print(
        f"{len(rows)} models, {result['cells']} cells: at least the best rival's count in "
        f"{100 * result['held']:.1f} %, fewest nodes in {100 * result['fewest nodes']:.1f} % of the models"
    )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "verdict": result}, indent=2))
    return 0 if result["held"] >= 0.95 and result["fewest nodes"] >= 0.9 else 1


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = []
    for name in options.only or zoo_names():
        for attention in ("sdpa", "eager"):
            ready = options.cache / f"{name}-{attention}.json"
            if not ready.exists() and not (options.export and attention == "sdpa"):
                continue
            try:
                cases.append(zoo_case(name, attention, options.cache))
            except Exception as error:  # the exporters' own tests say which models export
                console.print(f"{name}-{attention}: not exported ({type(error).__name__})", markup=False)
    return cases


def _line(row: dict[str, Any]) -> str:
    def cell(name: str, pattern: str) -> str:
        return "–" if row[name] is None else str(row[name][pattern])

    cells = [f"{p} {'/'.join(cell(n, p) for n in OPTIMIZERS)}" for p in (*PATTERNS, "bias + gelu", "nodes")]
    return f"{row['model']}: {', '.join(cells)}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", type=lambda t: t.split(","))
    parser.add_argument("--cache", type=Path, default=Path(".cache/inference"))
    parser.add_argument("--no-export", dest="export", action="store_false", help="only what the cache has")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
