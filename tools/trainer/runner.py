"""Runs a graph on torch tensors: memory is shared in both directions, weights come from the live module.

Addresses are never kept between runs: optimizers, DeepSpeed and `load_state_dict` move storage at will.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxruntime.capi import _pybind_state as native
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.training.dropout import SEED
from fuseline.engine.training.seeds import seed_runtime

__all__ = ["LEVEL", "Runner", "with_weights", "without_weights"]

LEVEL = "all"
"""ONNX Runtime's own optimisations in these sessions; weights are inputs, so that none is folded."""

_CPU = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)


def without_weights(model: Model) -> Model:
    """A copy whose parameters and buffers are graph inputs, so that they are fed and never folded."""
    copy = model.clone()
    graph = copy.graph
    for name, value in list(graph.initializers.items()):
        if not copy.parameters.holds(name):
            continue
        tensor = value.const_value
        if tensor is not None:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        del graph.initializers[name]
        value.const_value = None
        if not value.is_graph_input():
            graph.inputs.append(value)
    return copy


def with_weights(graph: Model, named: Mapping[str, Tensor]) -> Model:
    """The graph with the module's weights as initializers again."""
    copy = graph.clone()
    originals = {n: t.detach().numpy() for n, t in named.items() if n in copy.parameters}
    contents = copy.parameters.to_graph(originals)
    for value in list(copy.graph.inputs):
        if value.name in contents:
            copy.graph.inputs.remove(value)
            value.const_value = ir.tensor(np.ascontiguousarray(contents[value.name]), name=value.name)
            copy.graph.register_initializer(value)
    return copy


class Runner:
    """One session over a model made by `without_weights`."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        self.model = model
        self.threads = threads or torch.get_num_threads()
        self._session = runtime.session(model, optimize=LEVEL, threads=self.threads, options=_options)
        self._types = {i.name: i.type for i in self._session.get_inputs()}
        self.weights = [n for n in self._types if model.parameters.holds(n)]
        self.inputs = [n for n in self._types if not model.parameters.holds(n)]
        self.outputs = [o.name for o in self._session.get_outputs()]
        self.produced = frozenset(self.outputs)
        firsts = {name: model.parameters.of_value(name)[0] for name in self.weights}
        # Most weights are fed as they are, and there are many of them.
        self._as_they_are = {name: first.name for name, first in firsts.items() if not first.steps}
        self.random = SEED in self._types or any(n.op_type == "Dropout" for n in model.nodes())

    def accepts(self, name: str) -> bool:
        return name in self._types

    def __call__(
        self,
        feeds: Mapping[str, Tensor],
        named: Mapping[str, Tensor],
        outputs: Sequence[str] | None = None,
        *,
        seed: int | None = None,
    ) -> dict[str, Tensor]:
        """Run on the inputs `feeds`, with weights out of `named` (original name → tensor)."""
        wanted = list(outputs) if outputs is not None else self.outputs
        given = dict(feeds)
        if seed is not None:
            seed_runtime(seed)
            given[SEED] = torch.tensor([seed])
        values = {n: given[n] for n in self.inputs} | {n: self._content(n, named) for n in self.weights}
        fed, results = native.OrtValueVector(), native.OrtValueVector()
        # The tensors must outlive the run: the vectors hold their memory, not the tensors.
        kept = [self._fit(name, value) for name, value in values.items()]
        for value in kept:
            fed.push_back(_ort_value(value))
        try:
            self._session._sess.run_with_ortvaluevector(
                native.RunOptions(), list(values), fed, wanted, results, [_CPU] * len(wanted)
            )
        except Exception as error:  # ONNX Runtime raises a dozen unrelated types
            raise ModelError(f"ONNX Runtime failed in a training step: {_first_line(error)}") from error
        return {name: from_dlpack(results.dlpack_at(i)) for i, name in enumerate(wanted)}

    def _content(self, value: str, named: Mapping[str, Tensor]) -> Tensor:
        original = self._as_they_are.get(value)
        if original is not None:
            return named[original]
        content: Tensor = self.model.parameters.value_content(value, named)
        return content

    def _fit(self, name: str, value: Tensor) -> Tensor:
        wanted = _DTYPES.get(self._types[name])
        value = value.detach()
        if wanted == torch.bool and value.dtype == torch.uint8:
            return value.view(torch.bool).contiguous()
        if wanted is not None and value.dtype != wanted:
            value = value.to(wanted)
        return value.contiguous()


_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(float16)": torch.float16,
    "tensor(bfloat16)": torch.bfloat16,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(bool)": torch.bool,
}


def _options(settings: Any) -> None:
    # Patterns are planned per shape, and batches differ in shape: they would only hold memory.
    settings.enable_mem_pattern = False


def _ort_value(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bool:
        return native.OrtValue.from_dlpack(to_dlpack(tensor.view(torch.uint8)), True)
    return native.OrtValue.from_dlpack(to_dlpack(tensor), False)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:400]
