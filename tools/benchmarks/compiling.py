"""How long a training script waits for its graph: BERT-base, the first start and the second.

    python -m fuseline.tools.benchmarks.compiling [--rounds N]

Each start is a process of its own that makes the model, the trainer and the graph of its training step from
one batch; counted is what `trainer.compile` takes, imports and the model apart. A first start finds an empty
cache; with the check, its loss and gradients are compared with torch's. Exit 1 when a median misses its bar.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fuseline.tools.console import console

__all__ = ["main"]

#: Seconds that a start may take.
BARS = {"first start, unchecked": 14.0, "first start, checked": 18.0, "second start": 2.0}


def start(cache: Path, check: bool) -> float:
    """Seconds until the graph of a step is there, in this process."""
    import torch
    import transformers

    from fuseline.tools.trainer import Trainer, TrainingArguments

    torch.manual_seed(0)
    config = transformers.BertConfig()
    model = transformers.BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    lengths = (17, 24, 9, 30, 12, 28, 21, 15)
    padded = [
        {
            "input_ids": torch.cat([torch.randint(5, 20_000, (n,)), torch.zeros(max(lengths) - n).long()]),
            "attention_mask": (torch.arange(max(lengths)) < n).long(),
            "label": n % 2,
        }
        for n in lengths
    ]
    with tempfile.TemporaryDirectory(prefix="fuseline-start-") as folder:
        args = TrainingArguments(
            folder, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True
        )
        trainer = Trainer(
            model, args, train_dataset=padded, cache_dir=str(cache), check=check, fallback="error"
        )
        batch = next(iter(trainer.get_train_dataloader()))
        begin = time.perf_counter()
        trainer.compile(batch)
        return time.perf_counter() - begin


def measure() -> dict[str, float]:
    """One start of each kind; the second one finds what the checked first one left."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="fuseline-cache-") as name:
        for label, check, cache in (
            ("first start, unchecked", False, "unchecked"),
            ("first start, checked", True, "checked"),
            ("second start", True, "checked"),
        ):
            command = [sys.executable, "-m", "fuseline.tools.benchmarks.compiling"]
            command += ["--one", str(Path(name) / cache), *([] if check else ["--no-check"])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[label] = float(done.stdout.split()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--no-check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(start(options.one, not options.no_check))
        return 0
    rounds = [measure() for _ in range(options.rounds)]
    kept = True
    for label, bar in BARS.items():
        seconds = [found[label] for found in rounds]
        console.print(
            f"{label}: {median(seconds):.1f} s ({min(seconds):.1f} … {max(seconds):.1f}; bar {bar:.0f} s)"
        )
        kept = kept and median(seconds) <= bar
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
