"""How many fusions each optimiser finds, per kind and model, and how many nodes remain.

    python -m fuseline.tools.benchmarks.fusions [--only bert,gpt2] [--cache FOLDER] [--table FILE]

The models are the exporters' zoo, with both attention implementations, and third-party transformer files.
Rivals, all in this run: onnxruntime.transformers.optimizer with every model type, optimum's O3 (in an
environment of its own), and onnxscript's optimize_for_ort. Each gets the exported file and the same file
simplified by onnxscript, and the best of all its answers counts, cell by cell. An answer that does not run,
or whose outputs are off by more than 1e-2, is none. Exit 1 when fuseline misses the bars, or 1e-4 itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from fuseline.engine.pipeline import Pipeline
from fuseline.tools.benchmarks.architectures import Case, third_party_cases, zoo_case, zoo_names
from fuseline.tools.benchmarks.fusion_counts import COLUMNS, count, difference, outputs
from fuseline.tools.benchmarks.fusion_worker import attempts
from fuseline.tools.benchmarks.rivals import RIVALS, optimum_environment, prepare_optimum, quiet, simplified
from fuseline.tools.console import console

__all__ = ["best", "main", "verdict"]

CELLS_BAR, NODES_BAR = 0.95, 0.90
OUR_TOLERANCE, RIVAL_TOLERANCE = 1e-4, 1e-2
Row = dict[str, Any]


def best(found: list[Row]) -> dict[str, int] | None:
    """The best of a rival's answers that are right, column by column; None if there is none."""
    right = [e["counts"] for e in found if e.get("difference", float("inf")) <= RIVAL_TOLERANCE]
    if not right:
        return None
    return {c: max(r[c] for r in right) for c in COLUMNS} | {"nodes": min(r["nodes"] for r in right)}


def verdict(rows: list[Row]) -> dict[str, Any]:
    """The share of cells where fuseline finds as many as the best rival, and of models with fewest nodes."""
    cells = 0
    short: list[str] = []
    larger: list[str] = []
    for row in rows:
        others = [row["rivals"][r] for r in RIVALS if row["rivals"][r] is not None]
        for column in COLUMNS:
            most = max((o[column] for o in others), default=0)
            if most or row["fuseline"][column]:
                cells += 1
            if row["fuseline"][column] < most:
                short.append(f"{row['model']}: {column} {row['fuseline'][column]} of {most}")
        fewest = min((o["nodes"] for o in others), default=row["fuseline"]["nodes"])
        if row["fuseline"]["nodes"] > fewest:
            larger.append(f"{row['model']}: {row['fuseline']['nodes']} nodes, best {fewest}")
    return {
        "cells": cells,
        "held": 1 - len(short) / max(cells, 1),
        "fewest nodes": 1 - len(larger) / max(len(rows), 1),
        "worst difference": max((row["difference"] for row in rows), default=0.0),
        "short": short,
        "larger": larger,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    cases = _cases(options)
    rows = _compare(cases, options)
    for row in rows:
        console.print(_line(row))
    result = verdict(rows)
    for line in (*result["short"], *result["larger"]):
        console.print(f"short: {line}")
    console.print(_summary(rows, result))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "verdict": result}, indent=2))
    if options.table:
        options.table.write_text(_table(rows, result))
    held = result["held"] >= CELLS_BAR and result["fewest nodes"] >= NODES_BAR
    return 0 if held and result["worst difference"] <= OUR_TOLERANCE else 1


def _compare(cases: list[Case], options: argparse.Namespace) -> list[Row]:
    rows = [_ours(case) for case in cases]
    found = _rivals(cases, options)
    for row in rows:
        row["rivals"] = {r: best([e for e in found[r] if e["case"] == row["model"]]) for r in RIVALS}
    return rows


def _ours(case: Case) -> Row:
    made = Pipeline.resolve("inference").run(case.model()).model.to_proto()
    before = onnx.load(case.path)
    apart = difference(outputs(before, case.inputs), outputs(made, case.inputs))
    return {
        "model": case.name,
        "before": count(before)["nodes"],
        "fuseline": count(made),
        "difference": apart,
    }


def _rivals(cases: list[Case], options: argparse.Namespace) -> dict[str, list[Row]]:
    with quiet():
        jobs = [(case, [p for p in (case.path, simplified(case, options.cache)) if p]) for case in cases]
    if not options.reuse:
        prepare_optimum(optimum_environment(options.optimum), jobs, options.cache)
    return {
        rival: attempts(rival, jobs, options.cache, reuse=options.reuse, processes=options.processes)
        for rival in RIVALS
    }


def _cases(options: argparse.Namespace) -> list[Case]:
    cases = []
    for name in zoo_names():
        for attention in ("sdpa", "eager"):
            if not options.only or name in options.only:
                try:
                    cases.append(zoo_case(name, attention, options.cache))
                except Exception as error:  # most often: transformers has no such attention for it
                    console.print(f"{name}-{attention}: not exported ({str(error)[:100]})")
    return cases + [c for c in third_party_cases() if not options.only or c.name in options.only]


def _cell(row: Row, column: str) -> str:
    others = [row["rivals"][r] for r in RIVALS]
    return "/".join(str(o[column]) if o is not None else "–" for o in (row["fuseline"], *others))


def _line(row: Row) -> str:
    used = [c for c in COLUMNS if any(o and o[c] for o in (row["fuseline"], *row["rivals"].values()))]
    cells = ", ".join(f"{c} {_cell(row, c)}" for c in (*used, "nodes"))
    return f"{row['model']} ({row['before']} nodes, off by {row['difference']:.0e}): {cells}"


def _summary(rows: list[Row], result: Row) -> str:
    return (
        f"{len(rows)} models, {result['cells']} cells: at least the best rival's count in "
        f"{100 * result['held']:.1f} % (bar {100 * CELLS_BAR:.0f} %), fewest nodes in "
        f"{100 * result['fewest nodes']:.1f} % of the models (bar {100 * NODES_BAR:.0f} %), "
        f"outputs off by at most {result['worst difference']:.1e}"
    )


def _table(rows: list[Row], result: Row) -> str:
    """The whole comparison as Markdown."""
    lines = ["# Fusion counts", "", f"Written by `make bench-fusions`. {_summary(rows, result)}.", ""]
    lines += [
        f"Each cell: fuseline / {' / '.join(RIVALS)}; – where a rival fails or gives other outputs.",
        "",
    ]
    lines += ["| model | before | nodes | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 3) + "|"]
    for row in rows:
        cells = [_cell(row, c) if any(_cell(row, c).strip("0/–")) else "" for c in COLUMNS]
        lines.append(f"| {row['model']} | {row['before']} | {_cell(row, 'nodes')} | {' | '.join(cells)} |")
    for title, listed in (
        ("Fewer than a rival", result["short"]),
        ("More nodes than a rival", result["larger"]),
    ):
        if listed:
            lines += ["", f"## {title}", "", *(f"- {line}" for line in listed)]
    return "\n".join(lines) + "\n"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", type=lambda t: t.split(","))
    parser.add_argument("--cache", type=Path, default=Path(".cache/inference"))
    parser.add_argument("--optimum", type=Path, default=Path(".venv-optimum"), help="its environment")
    parser.add_argument("--reuse", action="store_true", help="keep the rivals' answers of the last run")
    parser.add_argument("--processes", type=int, default=2, help="how many for the rivals")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="write the comparison as Markdown")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
