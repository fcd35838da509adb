"""Runs a graph on torch tensors: memory is shared in both directions, weights come from the live module.

Addresses are never kept between runs: optimizers, DeepSpeed and `load_state_dict` move storage at will.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxruntime.capi import _pybind_state as native
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter, Slice, Transpose
from fuseline.engine.parameters import Reshape as ReshapeStep
from fuseline.engine.training.forward import SEED
from fuseline.engine.training.seeds import seed_runtime

__all__ = ["LEVEL", "Runner", "to_original", "with_weights", "without_weights"]

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
            value.const_value = ir.tensor(contents[value.name], name=value.name)
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
        self.random = SEED in self._types or any(n.op_type == "Dropout" for n in model.nodes())
        self._makers = {name: _maker(model.parameters.of_value(name)) for name in self.weights}

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
        values = {n: given[n] for n in self.inputs} | {n: self._makers[n](named) for n in self.weights}
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


def _maker(parts: Sequence[Parameter]) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """How a graph value is made of the module's tensors: as it is, or transposed, reshaped, packed."""
    if not any(isinstance(s, Slice) for p in parts for s in p.steps):
        first = parts[0]
        return lambda named: _to_graph(first, named[first.name])
    axis = next(s.axis for s in parts[0].steps if isinstance(s, Slice))
    ordered = sorted({_start(p): p for p in parts}.items())
    return lambda named: torch.cat([_to_graph(p, named[p.name]) for _, p in ordered], dim=axis)


def _to_graph(parameter: Parameter, tensor: Tensor) -> Tensor:
    for step in parameter.steps:
        if isinstance(step, Transpose):
            tensor = tensor.permute(step.perm)
        elif isinstance(step, ReshapeStep):
            tensor = tensor.reshape(step.after)
    return tensor


def to_original(parameter: Parameter, gradient: Tensor) -> Tensor:
    """The parameter's own gradient out of its graph value's; a view wherever possible."""
    for step in reversed(parameter.steps):
        if isinstance(step, Transpose):
            gradient = gradient.permute([step.perm.index(i) for i in range(len(step.perm))])
        elif isinstance(step, ReshapeStep):
            gradient = gradient.reshape(step.before)
        elif isinstance(step, Slice):
            gradient = gradient.narrow(step.axis, step.start, step.stop - step.start)
    return gradient


def _start(parameter: Parameter) -> int:
    return next(s.start for s in parameter.steps if isinstance(s, Slice))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:400]
