"""Kill -9 a training run at a random moment, resume it, and compare the end bit by bit; many times.

    python -m fuseline.tools.campaigns.kill_resume [--kills 20] [--mode torch] [--mode whole-step]

The model has dropout; the optimizer is torch's, or runs inside the graph.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from fuseline.engine.files import atomic_write
from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.console import console
from fuseline.tools.trainer import Trainer, TrainingArguments
from fuseline.tools.trainer.checkpoints import MARK, last_complete

STEPS, SAVE_EVERY = 24, 3
MODES = ("torch", "whole-step")
Chosen = dict[str, Any]
# A fork starts in milliseconds what importing everything again would take seconds for.
_processes = multiprocessing.get_context("fork")


class Progress(transformers.TrainerCallback):
    """Tells the parent process how far the run is."""

    def __init__(self, step: Any) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step.value = state.global_step


def work(folder: Path, chosen: Chosen, step: Any) -> None:
    """Train to the end, from the last complete checkpoint if there is one, and leave the weights' hash."""
    torch.set_num_threads(1)
    _silence(folder)
    model = zoo.build("bert", dropout=0.1)
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        max_steps=STEPS,
        save_steps=SAVE_EVERY,
        save_total_limit=2,
        learning_rate=1e-3,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    data = Rows(zoo.batch(model, 50, 12))
    trainer = Trainer(
        model,
        args,
        train_dataset=data,
        callbacks=[Progress(step)],
        fallback="error",
        cache_dir=folder.parent,
        **chosen,
    )
    trainer.train(resume_from_checkpoint=True if last_complete(folder) else None)
    with atomic_write(folder / "hash") as temporary:
        temporary.write_text(_digest(model))


def _silence(folder: Path) -> None:
    handle = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def _digest(model: torch.nn.Module) -> str:
    hashed = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        hashed.update(name.encode())
        hashed.update(tensor.numpy().tobytes())
    return hashed.hexdigest()


def run(folder: Path, chosen: Chosen) -> tuple[str, float]:
    """An undisturbed run: the hash of its weights, and its seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    process = _processes.Process(target=work, args=(folder, chosen, _processes.Value("i", 0)))
    process.start()
    process.join()
    if process.exitcode != 0:
        sys.exit(f"a run failed:\n{(folder / 'log').read_text()[-2000:]}")
    return (folder / "hash").read_text(), time.perf_counter() - begin


def killed(folder: Path, chosen: Chosen, chance: random.Random, *, while_saving: bool) -> str:
    """Start a run and kill it some time after a random step, or then as soon as it writes a checkpoint."""
    folder.mkdir()
    target, step = chance.randrange(0, STEPS - SAVE_EVERY), _processes.Value("i", 0)
    process = _processes.Process(target=work, args=(folder, chosen, step))
    process.start()
    assert process.pid is not None
    while process.is_alive() and step.value < target:
        time.sleep(0.0005)
    while while_saving and process.is_alive() and not any(folder.glob(f"*/{MARK}")):
        time.sleep(0.0002)
    time.sleep(chance.uniform(0, 0.05))
    if not process.is_alive():
        sys.exit(f"the run ended before it could be killed:\n{(folder / 'log').read_text()[-2000:]}")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    where = "while saving" if any(folder.glob(f"*/{MARK}")) else "between checkpoints"
    return f"{where} after step {step.value}"


def campaign(kills: int, chance: random.Random, chosen: Chosen) -> int:
    """So many kills and resumes; how many of them ended at the weights of an undisturbed run."""
    with tempfile.TemporaryDirectory(prefix="fuseline-kills-") as place:
        root = Path(place)
        run(root / "warm-up", chosen)
        expected, seconds = run(root / "reference", chosen)
        console.print(f"reference: {STEPS} steps in {seconds:.1f} s, weights {expected[:12]}")
        same = 0
        for kill in range(kills):
            folder = root / f"run-{kill}"
            when = killed(folder, chosen, chance, while_saving=bool(kill % 2))
            found = last_complete(folder)
            result, _ = run(folder, chosen)
            same += result == expected
            verdict = "identical" if result == expected else f"DIFFERENT ({result[:12]})"
            console.print(
                f"kill {kill + 1:2}: {when}, resumed from {found.name if found else 'the start'}: {verdict}"
            )
    return same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pipeline", default="training")
    parser.add_argument("--mode", action="append", choices=MODES)
    options = parser.parse_args()
    failed = False
    for mode in options.mode or MODES:
        chosen = {"pipeline": options.pipeline, "whole_step": mode == "whole-step"}
        console.print(f"{mode}:")
        same = campaign(options.kills, random.Random(options.seed), chosen)
        console.print(f"{same} of {options.kills} resumed runs ended bit-identical ({mode})")
        failed |= same < options.kills
    sys.exit(failed)


if __name__ == "__main__":
    main()
