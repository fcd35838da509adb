"""ONNX Runtime sessions: the one place that creates them.

ONNX Runtime is imported when the first session is made: its training wheel drags in torch, which would
cost every command seconds.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.files import INLINE_LIMIT, weight_bytes
from fuseline.engine.model import Model
from fuseline.engine.operators import libraries, lookup
from fuseline.engine.operators.operator import Library
from fuseline.engine.properties import Property

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["refusal", "run", "session", "shorten"]

Array = npt.NDArray[Any]

_PROVIDERS = ("CPUExecutionProvider",)
LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def session(
    model: Model | str | Path,
    *,
    optimize: str = "none",
    threads: int | None = None,
    options: Callable[[ort.SessionOptions], None] | None = None,
    providers: Sequence[str] = _PROVIDERS,
) -> ort.InferenceSession:
    """A session on the model (or file); ONNX Runtime's own optimisations are off unless asked for."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[optimize])
    settings.log_severity_level = 4
    if threads is not None:
        settings.intra_op_num_threads = threads
    for library in libraries():
        _load(library, settings)
    if isinstance(model, Model) and model.has(Property.ORDERED):
        settings.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    if options is not None:
        options(settings)
    if isinstance(model, (str, Path)):
        return _create(str(model), settings, providers)
    if weight_bytes(model.ir) <= INLINE_LIMIT:
        inlined = ir.external_data.load_to_model(model.to_ir())
        return _create(ir.to_proto(inlined).SerializeToString(), settings, providers)
    # Too large for one message: ONNX Runtime reads the weights from files, once, at creation.
    with tempfile.TemporaryDirectory(prefix="fuseline-") as folder:
        path = Path(folder) / "model.onnx"
        model.save(path, external=True)
        return _create(str(path), settings, providers)


def _load(library: Path, settings: ort.SessionOptions) -> None:
    try:
        settings.register_custom_ops_library(str(library))
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(f"ONNX Runtime does not load {library}: {shorten(error)}") from error


def _create(source: str | bytes, settings: Any, providers: Sequence[str]) -> ort.InferenceSession:
    import onnxruntime as ort

    # The training build gives sessions that name a provider the memory of the first that did, whatever they
    # ask for. Without a name they have the same provider, and memory of their own.
    own = hasattr(ort, "training") and tuple(providers) == _PROVIDERS
    try:
        return ort.InferenceSession(source, settings, providers=None if own else list(providers))
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        raise ModelError(f"ONNX Runtime {ort.__version__} refuses the model: {refusal(error)}") from error


def run(
    running: ort.InferenceSession, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Array]:
    """Feed and fetch by name."""
    names = list(outputs) if outputs is not None else [o.name for o in running.get_outputs()]
    known = {i.name for i in running.get_inputs()}
    # Not ascontiguousarray, which turns a scalar into a vector of one.
    feeds = {k: np.asarray(v, order="C") for k, v in inputs.items() if k in known}
    try:
        values = running.run(names, feeds)
    except Exception as error:
        raise ModelError(f"ONNX Runtime failed to run the model: {shorten(error)}") from error
    return dict(zip(names, values, strict=True))


_UNREGISTERED = re.compile(r"Fatal error: (.+):(\w+)\(-?\d+\) is not a registered function/op")


def refusal(error: Exception) -> str:
    """Why there is no session: what ONNX Runtime says, or that a declared operator has no kernel."""
    found = _UNREGISTERED.search(str(error))
    operator = lookup(found[1], found[2]) if found is not None else None
    if operator is None:
        return shorten(error)
    if isinstance(operator.library, Library) and operator.library() is None:
        return f"of {operator.qualified} no kernel is there: its library {operator.library.path} is missing"
    return f"of {operator.qualified} no kernel is there; custom(…, library=…) names the file that holds one"


def shorten(error: Exception) -> str:
    """The first line of what ONNX Runtime says, cut where it goes on."""
    text = str(error).strip().split("\n")[0]
    return text if len(text) <= 400 else text[:400] + "…"
