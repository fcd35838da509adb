"""Two processes against one: every engine for data-parallel training ends at the same weights.

    python -m fuseline.tools.campaigns.distributed [ddp] [zero-redundancy] [deepspeed] [accelerate]

Each run trains the same small BERT on the same data: once on one process with a batch of 8, then by torchrun
on two (gloo) with 4 each. The first three are the Trainer's, the last is a loop of one's own on Accelerate.
Printed are the largest difference of a weight and the bytes of moments per rank.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from fuseline.tools.campaigns.rows import Rows
from fuseline.tools.console import console

TOLERANCE = 1e-6
STEPS = 10
RATE, CLIP = 1e-3, 0.5
# Gradients that are rounding alone (the keys' bias) must not make steps.
EPSILON = 1e-5
MODES = ("ddp", "zero-redundancy", "deepspeed", "accelerate")
SHARDED = ("zero-redundancy", "deepspeed")

_DEEPSPEED_PACKAGES = (
    "deepspeed==0.19.8",
    "einops",
    "hjson",
    "msgpack",
    "py-cpuinfo",
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-inspection",
)

DEEPSPEED: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 500_000, "overlap_comm": False},
}


def work(mode: str, folder: Path, pipeline: str) -> None:
    """One rank of one run; rank 0 leaves the weights, every rank the bytes of its moments."""
    from fuseline.tools.campaigns import zoo

    torch.set_num_threads(1)
    model = zoo.build("bert")
    data = Rows(zoo.batch(model, 8 * STEPS, 12))
    processes, rank = (int(os.environ.get(name, d)) for name, d in (("WORLD_SIZE", "1"), ("RANK", "0")))
    run = _loop if mode == "accelerate" else _trainer
    counts, optimizer = run(model, data, mode, processes, folder, pipeline)
    if counts["torch"] or not counts["step"] + counts["loss"]:
        sys.exit(f"not trained on the graph: {dict(counts)}")
    result = _result(folder, mode, processes)
    result.with_suffix(f".{rank}.bytes").write_text(str(_moment_bytes(optimizer)))
    if rank == 0:
        torch.save({n: p.detach().float() for n, p in model.named_parameters()}, result)


def _trainer(
    model: Any, data: Any, mode: str, processes: int, folder: Path, pipeline: str
) -> tuple[Counter[str], Any]:
    from fuseline.tools.trainer import ShardedOptimizer, Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=str(folder / mode),
        per_device_train_batch_size=8 // processes,
        max_steps=STEPS,
        learning_rate=RATE,
        max_grad_norm=CLIP,
        adam_epsilon=EPSILON,
        # Each process takes the mean over its own half; counting all labels is for losses that do so.
        average_tokens_across_devices=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo" if processes > 1 else None,
        deepspeed=DEEPSPEED if mode == "deepspeed" else None,
    )
    chosen: dict[str, Any] = {}
    if mode == "zero-redundancy":
        settings = {"optimizer_class": torch.optim.AdamW, "lr": RATE, "eps": EPSILON}
        chosen["optimizer_cls_and_kwargs"] = (ShardedOptimizer, settings)
    trainer = Trainer(
        model, args, train_dataset=data, pipeline=pipeline, fallback="error", cache_dir=folder, **chosen
    )
    trainer.train()
    return trainer.bridge.counts, trainer.optimizer


def _loop(
    model: Any, data: Any, mode: str, processes: int, folder: Path, pipeline: str
) -> tuple[Counter[str], Any]:
    from accelerate import Accelerator

    from fuseline.tools.trainer import CompileCache, Compiler, Settings, attach

    accelerator = Accelerator(cpu=True)
    bridge = attach(model, Compiler(Settings(pipeline=pipeline, cache=CompileCache.at(folder))), "error")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON)
    loader = torch.utils.data.DataLoader(data, batch_size=8 // processes)
    prepared, stepper, batches = accelerator.prepare(model, optimizer, loader)
    for batch in batches:
        accelerator.backward(prepared(**batch).loss)
        accelerator.clip_grad_norm_(prepared.parameters(), CLIP)
        stepper.step()
        stepper.zero_grad()
    accelerator.end_training()
    return bridge.counts, optimizer


def _result(folder: Path, mode: str, processes: int) -> Path:
    return folder / f"{mode}-{processes}.pt"


def _moment_bytes(optimizer: Any) -> int:
    """The memory of the moments that this process holds; wrappers are opened."""
    while not getattr(optimizer, "state", None) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    inner = getattr(optimizer, "optim", None) or getattr(optimizer, "optimizer", optimizer)
    state = getattr(inner, "state", None) or optimizer.state
    return sum(
        tensor.numel() * tensor.element_size()
        for moments in state.values()
        for name, tensor in moments.items()
        if name.startswith("exp_avg")
    )


def launch(mode: str, folder: Path, pipeline: str, processes: int) -> None:
    module = ["-m", "fuseline.tools.campaigns.distributed"]
    own = [mode, "--worker", str(folder), "--pipeline", pipeline]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if mode == "deepspeed":
        environment |= _with_deepspeed()
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(torchrun if processes > 1 else []), *module, *own]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{mode} failed:\n{_first_failure(done.stderr)}")


def _with_deepspeed() -> dict[str, str]:
    """DeepSpeed from a folder of its own: ONNX Runtime imports it wherever it is installed."""
    folder = Path(".cache").resolve() / "deepspeed"
    environment = {
        "DS_ACCELERATOR": "cpu",
        "DS_BUILD_OPS": "0",
        "PYTHONPATH": str(folder),
        "TORCH_EXTENSIONS_DIR": str(folder.parent / "torch-extensions"),
        # It compiles its communication library at the first run, and looks for ninja.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    ready = folder / ".ready"
    if not ready.is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run(
            [*pip, "--upgrade", "--target", str(folder), *_DEEPSPEED_PACKAGES],
            env={**os.environ, **environment},
            check=True,
        )
        ready.touch()
    return environment


def _first_failure(text: str) -> str:
    """What the workers said, without what torchrun says about it."""
    return text.split("torch.distributed.elastic", 1)[0][-4000:]


def compare(mode: str, folder: Path) -> bool:
    alone, together = _result(folder, _reference(mode), 1), _result(folder, mode, 2)
    one, two = torch.load(alone), torch.load(together)
    difference = max(float((one[name] - two[name]).abs().max()) for name in one)
    held = [int(together.with_suffix(f".{rank}.bytes").read_text()) for rank in (0, 1)]
    whole = int(alone.with_suffix(".0.bytes").read_text())
    same, halved = difference <= TOLERANCE, mode not in SHARDED or max(held) <= 0.55 * whole
    console.print(
        f"{mode:16} largest difference {difference:.1e} ({'same' if same else 'DIFFERENT'}); moments per "
        f"process {held[0]:,} and {held[1]:,} of {whole:,} bytes{'' if halved else ' (NOT HALVED)'}"
    )
    return same and halved


def _reference(mode: str) -> str:
    """What a mode is on one process: a loop of one's own, or the Trainer."""
    return "accelerate" if mode == "accelerate" else "ddp"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"{', '.join(MODES)}; default: all")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pipeline", default="training")
    options = parser.parse_args()
    modes = options.modes or MODES
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are {', '.join(MODES)}")
    if options.worker:
        work(modes[0], options.worker, options.pipeline)
        return
    with tempfile.TemporaryDirectory(prefix="fuseline-distributed-") as place:
        folder = Path(place)
        for mode in {_reference(mode) for mode in modes}:
            launch(mode, folder, options.pipeline, 1)
        for mode in modes:
            launch(mode, folder, options.pipeline, 2)
        results = [compare(mode, folder) for mode in modes]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
