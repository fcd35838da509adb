"""Where a training step runs: the execution providers for a device."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import onnxruntime as ort

from fuseline.engine.errors import FuselineError, ModelError
from fuseline.engine.model import Model

__all__ = ["Device", "providers_for"]

Device = Literal["cpu", "cuda"]

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"


def providers_for(device: Device, model: Model) -> tuple[str, ...]:
    """The providers in order of preference; refuses a device that is not there or cannot run the graph."""
    if device == "cpu":
        return (_CPU,)
    if _CUDA not in ort.get_available_providers():
        raise FuselineError(
            f"device 'cuda' was asked for, but onnxruntime {ort.__version__} here has no {_CUDA}",
            hint="install the CUDA build in place of the CPU one: pip install onnxruntime-training==1.19.2",
        )
    native = Counter(node.op_type for node in model.nodes() if node.domain == "fuseline")
    if native:
        listed = ", ".join(f"{name} ({count})" for name, count in native.most_common())
        raise ModelError(
            f"the graph has operators that exist for the CPU only: {listed}",
            hint="use the pipeline 'training-stock', and 'insert-optimizer{kernels=false}' behind it",
        )
    return (_CUDA, _CPU)
