"""transformers' own example scripts, as they are and with nothing but the import changed.

    python -m fuseline.tools.campaigns.example_scripts --scripts transformers/examples/pytorch [--only qa]

Models, tokenizers and data are small and made here; the scripts are those of a checkout of transformers, and
nothing is fetched. Exit 1 if a loss differs by more than 1e-4 or a call of ours ran in torch.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fuseline.tools.campaigns.example_data import make_model, write_data
from fuseline.tools.console import console, fail

__all__ = ["SCRIPTS", "change_import", "main"]

_OURS = ("Trainer", "TrainingArguments", "Seq2SeqTrainer", "Seq2SeqTrainingArguments")
_TOLERANCE = 1e-4
_STEPS = 12


@dataclass(frozen=True)
class Script:
    """Where a script is, what it runs on, and its own options."""

    path: str
    architecture: str
    options: Mapping[str, Any] = field(default_factory=dict)


SCRIPTS = {
    "classification": Script(
        "text-classification/run_classification.py",
        "bert",
        {"text_column_names": "sentence", "label_column_name": "label", "max_seq_length": 16},
    ),
    "ner": Script("token-classification/run_ner.py", "bert"),
    "mlm": Script(
        "language-modeling/run_mlm.py",
        "bert",
        # Every batch has a masked token: by none torch would divide.
        {"line_by_line": True, "max_seq_length": 16, "per_device_train_batch_size": 16},
    ),
    "clm": Script("language-modeling/run_clm.py", "gpt2", {"block_size": 16}),
    "qa": Script("question-answering/run_qa.py", "bert", {"max_seq_length": 32, "doc_stride": 8}),
    "translation": Script(
        "translation/run_translation.py", "t5", {"source_lang": "en", "target_lang": "de", "num_beams": 1}
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", type=Path, help="the folder examples/pytorch of a checkout")
    parser.add_argument("--only", choices=list(SCRIPTS), action="append")
    parser.add_argument("--verbose", action="store_true", help="show what the scripts print")
    arguments = parser.parse_args()
    if arguments.scripts is None or not (arguments.scripts / SCRIPTS["clm"].path).is_file():
        fail(_how_to_provide(arguments.scripts))
        return 2
    results = [_compare(task, arguments.scripts, arguments.verbose) for task in arguments.only or SCRIPTS]
    return 0 if all(results) else 1


def _how_to_provide(scripts: Path | None) -> str:
    where = "no folder was given" if scripts is None else f"{scripts} does not hold {SCRIPTS['clm'].path}"
    return (
        f"{where}: the scripts are not part of this repository and are not fetched. Check transformers "
        f"out at v{version('transformers')} or the nearest tag, `pip install datasets evaluate`, and pass "
        "the folder: make example-scripts SCRIPTS=path/to/transformers/examples/pytorch"
    )


def _compare(task: str, scripts: Path, verbose: bool) -> bool:
    """Both runs of one script; prints a line, and says whether they agree."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        script = SCRIPTS[task]
        make_model(script.architecture, folder / "model")
        files = write_data(task, folder)
        found: dict[str, dict[str, Any]] = {}
        for whose in ("stock", "ours"):
            copied = folder / whose
            shutil.copytree((scripts / script.path).parent, copied)
            if whose == "ours":
                for file in copied.glob("*.py"):
                    file.write_text(change_import(file.read_text(encoding="utf-8")), encoding="utf-8")
            ended = _run(copied / Path(script.path).name, script, folder, files, verbose)
            if ended:
                console.print(f"{task}: {whose} ended with\n{ended}")
                return False
            found[whose] = _results(copied)
    return _report(task, found["stock"], found["ours"])


def change_import(text: str) -> str:
    """The script with the trainer and its arguments from here: the one line that a user would change."""
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and node.module == "transformers":
            names = [alias.name for alias in node.names if alias.name in _OURS]
            if names:
                assert node.end_lineno is not None
                lines.insert(node.end_lineno, f"from fuseline import {', '.join(names)}\n")
    return "".join(lines)


def _run(script: Path, kind: Script, folder: Path, files: tuple[Path, Path], verbose: bool) -> str:
    """What the script said if it failed."""
    options: dict[str, Any] = {
        "model_name_or_path": folder / "model",
        "train_file": files[0],
        "validation_file": files[1],
        "output_dir": script.parent / "out",
        "do_train": True,
        "do_eval": True,
        "max_steps": _STEPS,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **kind.options,
    }
    command = [sys.executable, "-m", "fuseline.tools.campaigns.example_scripts_run", str(script)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "FUSELINE_CACHE": str(folder / "cache"),
    }
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=script.parent)
    if verbose:
        console.print(ended.stderr[-6000:])
    return "" if ended.returncode == 0 else ended.stderr[-3000:]


def _results(folder: Path) -> dict[str, Any]:
    """Every figure of the run that is no time, and how its models ran."""
    figures = json.loads((folder / "out" / "all_results.json").read_text(encoding="utf-8"))
    timed = ("runtime", "per_second", "flos")
    kept: dict[str, Any] = {n: v for n, v in figures.items() if not any(t in n for t in timed)}
    ran: dict[str, Any] = json.loads((folder / "ran.json").read_text(encoding="utf-8"))
    return kept | ran


def _report(task: str, stock: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    figures = [n for n, v in stock.items() if isinstance(v, int | float)]
    worst = max((abs(stock[n] - mine[n]), n) for n in figures)
    calls = mine["calls"]
    in_torch = calls.get("torch", 0)
    compared = "eval_loss" if "eval_loss" in stock else "train_loss"
    console.print(
        f"{task}: {compared} {stock[compared]:.6f} stock, {mine[compared]:.6f} ours; of {len(figures)} "
        f"figures {worst[1]} differs most, by {worst[0]:.1e}; {sum(calls.values()) - in_torch} calls on "
        f"ONNX Runtime, {in_torch} in torch {'; '.join(mine['reasons'])}",
    )
    return worst[0] <= _TOLERANCE and sum(calls.values()) > 0 and not in_torch


if __name__ == "__main__":
    sys.exit(main())
