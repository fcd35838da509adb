"""Feeding a session with torch tensors: memory is shared both ways, weights come from the live module.

Addresses are never kept between runs: optimizers, DeepSpeed and `load_state_dict` move storage at will.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxruntime.capi import _pybind_state as native
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from fuseline.engine.execution.plan import Plan
from fuseline.engine.execution.runner import Runner
from fuseline.engine.execution.seeds import seed_runtime
from fuseline.engine.training.dropout import SEED

__all__ = ["DirectRunner"]

_CPU = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)


class DirectRunner(Runner):
    """Weights and batch are handed over at each run, without a copy where layout and type allow."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        parameters = plan.model.parameters
        self.weights = [n for n in self._types if parameters.holds(n)]
        self.inputs = [n for n in self._types if not parameters.holds(n)]
        known = ((n, kind) for n, kind in self._types.items() if kind not in (None, ir.DataType.STRING))
        self._dtypes = {n: ir.tensor_adapters.to_torch_dtype(kind) for n, kind in known}
        firsts = {name: parameters.of_value(name)[0] for name in self.weights}
        # Most weights are fed as they are, and there are many of them.
        self._as_they_are = {name: first.name for name, first in firsts.items() if not first.steps}

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
        shapes = (tuple(wanted), *(tuple(values[name].shape) for name in self.inputs))
        try:
            with self.placing(shapes):
                self._session._sess.run_with_ortvaluevector(
                    native.RunOptions(), list(values), fed, wanted, results, [_CPU] * len(wanted)
                )
        except Exception as error:
            raise self.failure(error) from error
        return {name: from_dlpack(results.dlpack_at(i)) for i, name in enumerate(wanted)}

    def _content(self, value: str, named: Mapping[str, Tensor]) -> Tensor:
        original = self._as_they_are.get(value)
        if original is not None:
            return named[original]
        content: Tensor = self.model.parameters.value_content(value, named)
        return content

    def _fit(self, name: str, value: Tensor) -> Tensor:
        wanted = self._dtypes.get(name)
        value = value.detach().resolve_neg()  # a sign that is yet to be applied is not in the memory
        if wanted == torch.bool and value.dtype == torch.uint8:
            return value.view(torch.bool).contiguous()
        if wanted is not None and value.dtype != wanted:
            value = value.to(wanted)
        return value.contiguous()


def _ort_value(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bool:
        return native.OrtValue.from_dlpack(to_dlpack(tensor.view(torch.uint8)), True)
    return native.OrtValue.from_dlpack(to_dlpack(tensor), False)
