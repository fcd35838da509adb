"""Other optimisers of inference graphs: from a file to one optimised model for each way of asking them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import venv
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from fuseline.tools.benchmarks.architectures import Case

__all__ = ["RIVALS", "TRANSFORMERS", "fewest_nodes", "optimum_environment", "prepare_optimum", "simplified"]

TRANSFORMERS = "onnxruntime.transformers"
Attempt = tuple[str, Callable[[], onnx.ModelProto | None]]

# optimum pins an older transformers, so it lives apart; its onnxruntime is the version compared everywhere.
_OPTIMUM = ("torch==2.13.0",), ("optimum-onnx[onnxruntime]==0.1.0", "onnxruntime==1.19.2")


def _transformers(case: Case, source: Path) -> Iterator[Attempt]:
    """onnxruntime.transformers.optimizer with every model type it has."""
    from onnxruntime.transformers.optimizer import MODEL_TYPES, optimize_model

    def run(model_type: str) -> onnx.ModelProto:
        made = optimize_model(
            str(source), model_type=model_type, num_heads=case.heads, hidden_size=case.hidden
        )
        proto: onnx.ModelProto = made.model
        return proto

    for model_type in MODEL_TYPES:
        yield model_type, lambda model_type=model_type: run(model_type)  # type: ignore[misc]


def _onnxscript(case: Case, source: Path) -> Iterator[Attempt]:
    """onnxscript's optimize_for_ort, behind its own optimizer as its documentation has it."""

    def run() -> onnx.ModelProto:
        import onnx_ir as ir
        import onnxscript.optimizer
        from onnxscript.rewriter.ort_fusions import optimize_for_ort

        model = ir.load(source)
        onnxscript.optimizer.optimize(model)
        made = optimize_for_ort(model)
        return ir.to_proto(made[0] if isinstance(made, tuple) else made)

    yield "optimize_for_ort", run


def _optimum(case: Case, source: Path) -> Iterator[Attempt]:
    """optimum's O3; `prepare_optimum` has made the files."""

    def run() -> onnx.ModelProto | None:
        target = _optimum_target(source)
        return onnx.load(target) if target.exists() else None

    yield "O3", run


RIVALS: dict[str, Callable[[Case, Path], Iterator[Attempt]]] = {
    TRANSFORMERS: _transformers,
    "optimum O3": _optimum,
    "onnxscript": _onnxscript,
}


def simplified(case: Case, folder: Path) -> Path | None:
    """The file as torch's own exporter would have left it: optimised by onnxscript."""
    target = folder / f"{case.name}.simplified.onnx"
    if not target.exists():
        import onnx_ir as ir
        import onnxscript.optimizer

        try:
            model = ir.load(case.path)
            onnxscript.optimizer.optimize(model)
            ir.save(model, target)
        except Exception:  # then there is only the exported file
            return None
    return target


def fewest_nodes(case: Case, source: Path, rival: str) -> onnx.ModelProto:
    """The smallest model that the rival makes of the file, over all ways of asking it."""
    best: onnx.ModelProto | None = None
    for _, run in RIVALS[rival](case, source):
        try:
            with quiet():
                made = run()
        except Exception:  # many model types cannot take many models
            continue
        if made is not None and (best is None or len(made.graph.node) < len(best.graph.node)):
            best = made
    if best is None:
        raise RuntimeError(f"{rival} cannot optimise {source.name}")
    return best


def optimum_environment(folder: Path) -> Path:
    """The Python of an environment with optimum-onnx, made on first use."""
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        for packages in _OPTIMUM:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / ".ready").touch()
    return python


def prepare_optimum(python: Path, cases: list[tuple[Case, list[Path]]], folder: Path) -> None:
    """Let optimum optimise all files; one that ends its process is left out, and the rest go on."""
    jobs = [
        {"source": str(source), "target": str(_optimum_target(source)), "config": case.config}
        for case, sources in cases
        for source in sources
    ]
    for job in jobs:
        for left in (Path(str(job["target"])), Path(str(job["target"])).with_suffix(".started")):
            left.unlink(missing_ok=True)
    listed = folder / "optimum-jobs.json"
    listed.write_text(json.dumps(jobs))
    script = Path(__file__).with_name("optimum_o3.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for _ in range(len(jobs)):
        done = subprocess.run([python, script, listed], env=environment, capture_output=True, check=False)
        if done.returncode == 0:
            return


def _optimum_target(source: Path) -> Path:
    return source.with_name(f"{source.stem}.optimum.onnx")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The rivals talk a lot."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
