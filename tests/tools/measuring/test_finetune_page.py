"""The page of `bench-finetune` says what the results file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fuseline.tools.benchmarks.finetune_page import summary, write_page


def _measured(seconds: list[float], **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "cpu": sum(seconds) / len(seconds), "loss": 0.5, **more}


RESULTS = {
    "threads": 2,
    "speed": {
        "bert-base | to 128": {
            "fuseline": _measured([0.1, 0.11, 0.1], memory=100.0),
            "fuseline bf16": _measured([0.05, 0.05, 0.05]),
            "eager": _measured([0.5, 0.5, 0.5]),
            "sdpa": _measured([0.3, 0.32, 0.3], memory=400.0),
            "onnxruntime": _measured([0.4, 0.4, 0.4]),
        }
    },
    "accuracy": {"sdpa": {"1": 0.93, "2": 0.94}},
    "judged": {"examples": 2000, "held out": 4000},
}


def test_ratios_are_to_the_best_of_the_same_precision(tmp_path: Path) -> None:
    line, accuracy = summary(RESULTS)
    assert line.startswith(
        "bert-base, to 128: 2.97× (2.94 … 3.00) the stock Trainer with sdpa, 9.7 examples/s"
    )
    assert accuracy == "accuracy of sdpa: 93.50 ± 0.50 % (2 seeds)"
    page = tmp_path / "finetuning.md"
    write_page(RESULTS, page)
    assert (
        "| bert-base, to 128 | fp32 | sdpa | 2.97× | 2.94 … 3.00 | 9.7 | 0.34 | 0.25 | 3.87× |"
        in page.read_text()
    )
    assert "an epoch of 2,000 comments | accuracy on 4,000 others" in page.read_text()
    assert "(finetuning.svg)" in page.read_text()
    bars = ElementTree.parse(tmp_path / "finetuning.svg").getroot().findall("{*}rect")
    assert len(bars) == 2, "the background and one bar"
