"""Other optimisers of inference graphs, each as a function from a file to a file."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.benchmarks.architectures import Case

__all__ = ["OPTIMIZERS", "optimized"]

Optimizer = Callable[[Case, Path], None]


def _fuseline(case: Case, target: Path) -> None:
    Pipeline.resolve("inference").run(case.model()).model.save(target)


def _transformers(case: Case, target: Path) -> None:
    """onnxruntime.transformers.optimizer with every model type it has: the output with the fewest nodes."""
    from onnxruntime.transformers.optimizer import MODEL_TYPES

    best: Any = None
    for model_type in MODEL_TYPES:
        made = _run_transformers(case, model_type)
        if made is not None and (best is None or _size(made) < _size(best)):
            best = made
    if best is None:
        raise RuntimeError("no model type could be applied")
    best.save_model_to_file(str(target))


def _optimum_o3(case: Case, target: Path) -> None:
    """What optimum's O3 asks of onnxruntime.transformers (optimum itself pins an older transformers)."""
    from onnxruntime.transformers.fusion_options import FusionOptions

    family = _OPTIMUM_TYPES.get(case.family, "bert")
    options = FusionOptions(family)
    options.enable_gelu_approximation = True
    made = _run_transformers(case, family, opt_level=2, optimization_options=options)
    if made is None:
        raise RuntimeError(f"model type {family!r} could not be applied")
    made.save_model_to_file(str(target))


_OPTIMUM_TYPES = {
    "bart": "bart",
    "gpt2": "gpt2",
    "clip": "clip",
    "t5": "bert",
    "vit": "vit",
    "swin": "swin",
    "whisper": "bart",
}


def _onnxscript(case: Case, target: Path) -> None:
    import onnx_ir as ir
    import onnxscript.optimizer
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model = case.model().to_ir()
    onnxscript.optimizer.optimize(model)
    made = optimize_for_ort(model)
    model = made[0] if isinstance(made, tuple) else made
    ir.save(model, target)


def _run_transformers(case: Case, model_type: str, **settings: Any) -> Any:
    from onnxruntime.transformers.optimizer import optimize_model

    try:
        with quiet():
            return optimize_model(
                str(case.path),
                model_type=model_type,
                num_heads=case.heads,
                hidden_size=case.hidden,
                **settings,
            )
    except Exception:  # many model types cannot take many models; that is what is being compared
        return None


def _size(model: Any) -> int:
    return len(model.model.graph.node)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The rivals talk a lot."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


OPTIMIZERS: dict[str, Optimizer] = {
    "fuseline": _fuseline,
    "onnxruntime.transformers": _transformers,
    "optimum O3": _optimum_o3,
    "onnxscript": _onnxscript,
}


def optimized(case: Case, name: str, folder: Path) -> Path | None:
    """The optimised file, made once; None where the optimiser fails."""
    target = folder / f"{case.name}.{name.replace(' ', '-')}.onnx"
    if target.exists() and name != "fuseline":
        return target
    try:
        with quiet():
            OPTIMIZERS[name](case, target)
    except Exception:
        if name == "fuseline":
            raise
        return None
    return target


def node_count(path: Path) -> int:
    """Nodes of all graphs; constants are weights, not work."""
    return sum(1 for node in Model.load(path).nodes() if node.op_type != "Constant")
