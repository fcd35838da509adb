"""Sessions of training steps, shared by steps over the same graph and bounded in number."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import onnx_ir as ir
import onnxruntime as ort

from fuseline.engine.model import Model
from fuseline.engine.runtime import session

__all__ = ["SessionCache", "cache", "with_inputs"]


class SessionCache:
    """The last `capacity` sessions, by what they were made from; weights are no part of a session."""

    def __init__(self, capacity: int = 8) -> None:
        self.capacity = capacity
        self._sessions: OrderedDict[str, ort.InferenceSession] = OrderedDict()

    def get(
        self,
        model: Model,
        *,
        optimize: str,
        threads: int | None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> ort.InferenceSession:
        """A session on the model; one made before from the same graph and settings is used again."""
        key = _key(model, optimize, threads, providers)
        if key not in self._sessions:
            made = session(model, optimize=optimize, threads=threads, providers=providers)
            self._sessions[key] = made
        self._sessions.move_to_end(key)
        while len(self._sessions) > self.capacity:
            self._sessions.popitem(last=False)
        return self._sessions[key]

    def clear(self) -> None:
        self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)


cache = SessionCache()


def with_inputs(model: Model, names: Iterable[str]) -> Model:
    """A copy in which these initializers are inputs, so that their memory is bound from outside."""
    copy = model.clone()
    graph = copy.graph
    for name in names:
        value = graph.initializers.get(name)
        if value is None:
            continue
        tensor = value.const_value
        assert tensor is not None
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.numpy().shape)
        del graph.initializers[name]
        value.const_value = None
        graph.inputs.append(value)
    return copy


def _key(model: Model, optimize: str, threads: int | None, providers: Sequence[str]) -> str:
    text = hashlib.sha256(ir.to_proto(model.ir).SerializeToString(deterministic=True))
    text.update(f"{optimize}|{threads}|{','.join(providers)}".encode())
    return text.hexdigest()
