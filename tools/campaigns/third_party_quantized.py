"""Third-party models, quantized in every way: each runs, and each product left in float says why.

    python -m fuseline.tools.campaigns.third_party_quantized [--only TEXT]

Calibrated on made-up inputs, so that nothing is said of accuracy. Exit 1 where quantizing fails, unless by a
message of its own, the result does not run on this ONNX Runtime, or a product is left without a reason.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.campaigns.third_party import models
from fuseline.tools.console import console
from fuseline.tools.quantizer import quantize
from fuseline.tools.quantizer.data import Batches, made_up
from fuseline.tools.quantizer.left import UNKNOWN
from fuseline.tools.quantizer.metrics import predictor

__all__ = ["CONFIGS", "attempt", "main"]

CONFIGS: dict[str, dict[str, Any]] = {
    "dynamic": {"mode": "dynamic", "operators": ["MatMul", "Gemm", "Attention", "Conv", "Gather"]},
    "static": {"mode": "static"},
    "static, pairs": {"mode": "static", "format": "qdq"},
    "weights alone": {"mode": "weight-only"},
}


def attempt(path: Path, config: dict[str, Any], data: Batches) -> tuple[bool, str]:
    """Whether all is well, and what is to be said."""
    try:
        outcome = quantize(path, config=config, calibration=list(data.inputs()))
    except FuselineError as error:
        return True, f"refused: {error.message}"
    predictor(outcome.model)(data.items[0].inputs)
    reasons = Counter(outcome.left.products.values())
    silent = [name for name, reason in outcome.left.products.items() if reason == UNKNOWN]
    commonest = "".join(f"; {count} × {reason}" for reason, count in reasons.most_common(1))
    left = f"{sum(reasons.values())} left in float, {len(silent)} of them without a reason"
    return not silent, f"{outcome.left.quantized} quantized, {left}{commonest}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose path contains this text")
    arguments = parser.parse_args()
    failures = 0
    for path in models():
        if arguments.only not in str(path):
            continue
        data = made_up(Model.load(path), count=2)
        for name, config in CONFIGS.items():
            began = time.perf_counter()
            try:
                good, text = attempt(path, config, data)
            except Exception as error:  # whatever happens is a finding
                good, text = False, f"{type(error).__name__}: {error}"[:300]
            failures += not good
            state = "ok" if good else "failed"
            console.print(f"{state:7} {time.perf_counter() - began:6.1f} s  {path.name}, {name}: {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
