"""Inference latency against other optimisers, on models of realistic width.

    python -m fuseline.tools.benchmarks.inference [--only bert,gpt2] [--rounds 21] [--cache FOLDER]

Every variant of a model is loaded in one process with the same threads, and takes turns with the others;
the ratios are of medians. ONNX Runtime's own optimisations are on (ENABLE_ALL) for all of them; "plain" is
the exported file with nothing else. Of onnxruntime.transformers the smallest output over all model types is
taken, of the exported file and, for comparison, of the file simplified by onnxscript first. Exit 1 when the
bars against the former are missed, or outputs differ from the plain model's by more than 1e-4.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnx

from fuseline.engine import runtime
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.benchmarks.architectures import WIDE, Case, wide_case
from fuseline.tools.benchmarks.rivals import TRANSFORMERS, fewest_nodes, simplified
from fuseline.tools.console import console
from fuseline.tools.measuring.timing import interleave

__all__ = ["main", "measure"]

TOLERANCE = 1e-4
MEAN_BAR, LEAST_BAR = 1.10, 0.97


def _simplified(case: Case, folder: Path) -> onnx.ModelProto:
    source = simplified(case, folder)
    assert source is not None
    return fewest_nodes(case, source, TRANSFORMERS)


RIVALS: dict[str, Callable[[Case, Path], onnx.ModelProto]] = {
    TRANSFORMERS: lambda case, folder: fewest_nodes(case, case.path, TRANSFORMERS),
    "simplified + onnxruntime.transformers": _simplified,
    "onnxscript": lambda case, folder: fewest_nodes(case, case.path, "onnxscript"),
}


def measure(case: Case, folder: Path, *, rounds: int, threads: int) -> dict[str, Any]:
    """Milliseconds per variant, and how far fuseline's outputs are from the plain model's."""
    sessions = {
        "plain": runtime.session(case.path, optimize="all", threads=threads),
        "fuseline": runtime.session(
            Pipeline.resolve("inference").run(case.model()).model, optimize="all", threads=threads
        ),
    }
    expected = runtime.run(sessions["plain"], case.inputs)
    for name in RIVALS:
        path = _optimized(case, name, folder)
        if path is not None:
            sessions[name] = runtime.session(path, optimize="all", threads=threads)
    actual = runtime.run(sessions["fuseline"], case.inputs)
    error = max(float(np.abs(expected[k] - actual[k]).max()) for k in expected)
    runs = {name: (lambda s=s: runtime.run(s, case.inputs)) for name, s in sessions.items()}
    seconds = interleave(runs, rounds=rounds)
    return {"model": case.name, "error": error, "ms": {k: 1e3 * v for k, v in seconds.items()}}


def _optimized(case: Case, name: str, folder: Path) -> Path | None:
    """The rival's file, made once; None where it fails."""
    target = folder / f"{case.name}.{name.replace(' ', '-')}.onnx"
    if not target.exists():
        try:
            onnx.save(RIVALS[name](case, folder), target)
        except Exception as error:
            console.print(f"{case.name}: {name} fails: {str(error)[:200]}")
            return None
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    rows = []
    for name in options.only:
        row = measure(
            wide_case(name, options.cache), options.cache, rounds=options.rounds, threads=options.threads
        )
        rows.append(row)
        times = ", ".join(f"{k} {v:.1f} ms" for k, v in row["ms"].items())
        console.print(f"{row['model']}: {times}; error {row['error']:.1e}")
    summary = _summary(rows)
    for against, ratios in summary.items():
        console.print(
            f"fuseline against {against}: geometric mean {ratios['mean']:.3f}×, least {ratios['least']:.3f}×"
        )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "summary": summary}, indent=2))
    reached = summary[TRANSFORMERS]
    console.print(
        f"bars against {TRANSFORMERS}: mean {MEAN_BAR}×, least {LEAST_BAR}×; outputs within {TOLERANCE}"
    )
    equal = all(row["error"] <= TOLERANCE for row in rows)
    return 0 if equal and reached["mean"] >= MEAN_BAR and reached["least"] >= LEAST_BAR else 1


def _summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    summary = {}
    for against in ("plain", *RIVALS):
        ratios = [r["ms"][against] / r["ms"]["fuseline"] for r in rows if against in r["ms"]]
        if ratios:
            summary[against] = {"mean": geometric_mean(ratios), "least": min(ratios)}
    return summary


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(WIDE))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(".cache/inference"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
