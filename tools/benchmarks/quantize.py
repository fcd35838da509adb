"""Latency of quantized models: ours and the peers', each in its own environment, taking turns in one run.

    python -m fuseline.tools.benchmarks.quantize [--only bert,minilm] [--shapes 1x128,8x128] [--rounds N]

Every model is quantized dynamically with scales per channel (NNCF, which has no such mode, statically), and
runs on ONNX Runtime 1.19.2, on the newest, on OpenVINO or in torch. A variant that cannot be made or run is
listed with the reason. Exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from fuseline.engine.model import Model
from fuseline.tools.benchmarks.quantize_models import MODELS, Source, inputs_for, source
from fuseline.tools.console import console

__all__ = ["main"]

HERE = Path(__file__).parent
OURS = "fuseline"
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "newest": ("torch==2.13.0", "onnxruntime", "onnx", "numpy", "sympy", "coloredlogs", "packaging"),
    "neural-compressor": (
        "neural-compressor==2.6",
        "onnxruntime==1.19.2",
        "onnx==1.16.2",
        "numpy<2",
        "setuptools<80",
        "six",  # imported, not required
    ),
    "optimum": ("torch==2.13.0", "optimum-onnx[onnxruntime]==0.1.0", "onnxruntime==1.19.2"),
    "stock": ("onnxruntime==1.19.2", "onnx==1.16.2", "numpy<2"),
    "openvino": ("nncf==3.4.0", "openvino==2026.4.1", "onnx", "numpy"),
}
#: Peer → the environment that makes its file.
MAKERS = {
    "onnxruntime": "newest",
    "onnxruntime.transformers": "newest",
    "neural-compressor": "neural-compressor",
    "optimum": "optimum",
    "nncf": "openvino",
}
BARS = {"onnxruntime@1.19.2": 1.35, "onnxruntime@newest": 1.20, "fastest peer": 1.05}
PLAIN_BARS = {"bert": 3.3, "minilm": 2.3}


@dataclass(frozen=True)
class Variant:
    """One file on one runtime."""

    name: str
    worker: str
    kind: str
    path: Path


def environment(name: str, folder: Path) -> Path:
    """The Python of a peer's environment, made on first use; our own is `1.19.2`."""
    if name == "1.19.2":
        return Path(sys.executable)
    target = folder / name
    python = target / "bin" / "python"
    if not (target / ".ready").exists():
        venv.create(target, with_pip=True, clear=True)
        for package in ENVIRONMENTS[name]:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        (target / ".ready").touch()
    return python


class Worker:
    """A process of one environment that runs models when it is told to."""

    def __init__(self, python: Path) -> None:
        command = [str(python), str(HERE / "quantize_worker.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": "the process ended"}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def workers(names: Sequence[str], folder: Path) -> Iterator[dict[str, Worker]]:
    made = {name: Worker(environment(name, folder)) for name in names}
    try:
        yield made
    finally:
        for worker in made.values():
            worker.close()


def files(case: Source, inputs: Path, folder: Path, peers: Path) -> dict[str, Path | str]:
    """Quantizer → its file, or the reason why there is none."""
    from fuseline.tools.quantizer import quantize

    ours = folder / f"{case.name}.{OURS}.onnx"
    if not ours.exists():
        quantize(Model.load(case.path), ours, {"mode": "dynamic"})
    made: dict[str, Path | str] = {"plain": case.path, OURS: ours}
    for peer, place in MAKERS.items():
        suffix = "xml" if peer == "nncf" else "onnx"
        target = folder / f"{case.name}.{peer}.{suffix}"
        if not target.exists():
            python = environment(place, peers).absolute()
            facts = [case.family, str(case.heads), str(case.hidden)]
            command = [
                str(python),
                str(HERE / "quantize_peers.py"),
                peer,
                *(str(p.resolve()) for p in (case.path, target, inputs)),
            ]
            # Some peers leave folders of their own where they run.
            done = subprocess.run([*command, *facts], capture_output=True, text=True, check=False, cwd=folder)
            if done.returncode or not target.exists():
                made[peer] = (done.stderr.strip().splitlines() or ["no file was written"])[-1][:200]
                continue
        made[peer] = target
    made["torch"] = _torch(case, folder)
    return made


def _torch(case: Source, folder: Path) -> Path | str:
    """torch's own dynamic quantization of linear layers, where this version of torch still has it."""
    import torch

    target = folder / f"{case.name}.torch.pt"
    if target.exists():
        return target
    try:
        quantized: Any = torch.ao.quantization
        made = quantized.quantize_dynamic(case.build().eval(), {torch.nn.Linear}, torch.qint8)
        torch.save(made, target)
    except Exception as error:  # deprecated, and gone for some modules
        return f"{type(error).__name__}: {error}"[:200]
    return target


def variants(made: dict[str, Path | str]) -> list[Variant]:
    """Every file on every runtime that takes it."""
    found = []
    for name, path in made.items():
        if isinstance(path, str):
            continue
        if name == "nncf":
            found.append(Variant("nncf@openvino", "openvino", "openvino", path))
        elif name == "torch":
            found.append(Variant("torch", "1.19.2", "torch", path))
        else:
            found += [Variant(f"{name}@{r}", r, "onnxruntime", path) for r in ("1.19.2", "newest")]
        if name == "plain":
            found.append(Variant("plain@openvino", "openvino", "openvino", path))
    return found


def race(
    chosen: list[Variant], processes: dict[str, Worker], inputs: Path, *, rounds: int, threads: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Seconds of each variant, a quarter of the rounds stay below them; and who cannot run."""
    failed: dict[str, str] = {}
    for v in chosen:
        request = {"load": v.name, "kind": v.kind, "path": str(v.path.resolve()), "threads": threads}
        answer = processes[v.worker].ask(**request, inputs=str(inputs.resolve()))
        if "error" in answer:
            failed[v.name] = answer["error"]
    running = [v for v in chosen if v.name not in failed]
    samples: dict[str, list[float]] = {v.name: [] for v in running}
    for _ in range(rounds):
        for v in running:
            answer = processes[v.worker].ask(run=v.name)
            if "seconds" in answer:
                samples[v.name].append(answer["seconds"])
    return {name: float(np.quantile(s, 0.25)) for name, s in samples.items() if s}, failed


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """How many times as fast ours is as everything else on each runtime, and as the fastest of all."""
    made = {}
    for runtime in ("1.19.2", "newest"):
        ours = seconds.get(f"{OURS}@{runtime}")
        for name, value in seconds.items():
            if ours and name.endswith(f"@{runtime}") and not name.startswith(OURS):
                made[name] = value / ours
    best = min((v for n, v in seconds.items() if n.startswith(OURS)), default=None)
    peers = [v for n, v in seconds.items() if not n.startswith((OURS, "plain"))]
    if best and peers:
        made["fastest peer"] = min(peers) / best
    return made


def _judge(rows: list[dict[str, Any]]) -> bool:
    kept = True
    for name, bar in BARS.items():
        values = [r["ratios"][name] for r in rows if name in r["ratios"]]
        if values:
            mean = geometric_mean(values)
            console.print(
                f"against {name}: geometric mean {mean:.2f}× (bar {bar}×), least {min(values):.2f}×"
            )
            kept = kept and mean >= bar
    for model, bar in PLAIN_BARS.items():
        values = [r["ratios"]["plain@1.19.2"] for r in rows if r["model"] == model]
        if values:
            console.print(f"{model} against plain float: {median(values):.2f}× (bar {bar}×)")
            kept = kept and median(values) >= bar
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(MODELS))
    parser.add_argument("--shapes", type=lambda t: t.split(","), default=["1x128", "8x128"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("build/quantize/latency"))
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"))
    parser.add_argument("--json", type=Path, help="gathers the results of several runs")
    parser.add_argument("--prepare", action="store_true", help="make every file, and time nothing")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        return prepare(options)
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    rows = {(r["model"], r["shape"]): r for r in known}
    for name in options.only:
        case = source(name, options.cache)
        for shape in options.shapes:
            rows[name, shape] = _row(case, shape, options)
            if options.json:
                options.json.write_text(json.dumps(list(rows.values()), indent=2))
    return 0 if _judge(list(rows.values())) else 1


def prepare(options: argparse.Namespace) -> int:
    """What a quiet machine need not wait for; exit 1 where a file cannot be made."""
    complete = True
    for name in options.only:
        case = source(name, options.cache)
        made = files(case, _inputs(case, options.shapes[0], options), options.cache, options.peers)
        for maker, path in made.items():
            console.print(f"{name}: {maker}: {'ready' if isinstance(path, Path) else path}")
            complete = complete and isinstance(path, Path)
    return 0 if complete else 1


def _inputs(case: Source, shape: str, options: argparse.Namespace) -> Path:
    path: Path = options.cache / f"{case.name}-{shape}.npz"
    np.savez(path, allow_pickle=False, **inputs_for(case, *map(int, shape.split("x"))))
    return path


def _row(case: Source, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    inputs = _inputs(case, shape, options)
    made = files(case, inputs, options.cache, options.peers)
    chosen = variants(made)
    with workers(sorted({v.worker for v in chosen}), options.peers) as processes:
        seconds, failed = race(chosen, processes, inputs, rounds=options.rounds, threads=options.threads)
    failed |= {name: reason for name, reason in made.items() if isinstance(reason, str)}
    found = ratios(seconds)
    console.print(f"{case.name} {shape}")
    for variant, value in sorted(seconds.items(), key=lambda item: item[1]):
        console.print(f"  {variant:34} {value * 1e3:8.2f} ms")
    for variant, reason in failed.items():
        console.print(f"  {variant:34} does not run: {reason}")
    return {"model": case.name, "shape": shape, "seconds": seconds, "failed": failed, "ratios": found}


if __name__ == "__main__":
    sys.exit(main())
