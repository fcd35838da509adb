"""Sessions in a process of their own: a crash of ONNX Runtime becomes an error like any other."""

from __future__ import annotations

import atexit
import itertools
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.errors import ModelError
from fuseline.engine.files import INLINE_LIMIT, serialize, weight_bytes
from fuseline.engine.model import Model
from fuseline.engine.operators import libraries

__all__ = ["IsolatedSession", "session"]

Array = npt.NDArray[Any]


class Crashed(ModelError):
    """ONNX Runtime ended the process that ran the model."""


@dataclass(frozen=True)
class _Named:
    name: str


class IsolatedSession:
    """As much of an ONNX Runtime session as `runtime.run` needs."""

    def __init__(self, process: _Process, number: int, inputs: list[str], outputs: list[str]) -> None:
        self._process = process
        self._number = number
        self._inputs = [_Named(n) for n in inputs]
        self._outputs = [_Named(n) for n in outputs]

    def get_inputs(self) -> list[_Named]:
        return self._inputs

    def get_outputs(self) -> list[_Named]:
        return self._outputs

    @property
    def alive(self) -> bool:
        """Whether the process that holds the session still runs."""
        return self._process.holds(self._number)

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Any]:
        answer: list[Any] = self._process.ask("run", self._number, list(names), dict(feeds))
        return answer

    def __del__(self) -> None:
        self._process.forget(self._number)


class _Process:
    """The serving process, started when it is first asked."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._open: set[int] = set()
        self._closed: set[int] = set()

    def ask(self, *request: Any) -> Any:
        if request[0] == "run" and request[1] not in self._open:
            raise Crashed("the process that held this session ended; open it again")
        running = self._start()
        for number in self._closed & self._open:
            self._exchange(running, ("close", number))
        self._open -= self._closed
        self._closed.clear()
        return self._exchange(running, request)

    def _exchange(self, running: subprocess.Popen[bytes], request: tuple[Any, ...]) -> Any:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            pickle.dump(request, running.stdin, protocol=5)
            running.stdin.flush()
            state, content = pickle.load(running.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise Crashed(f"ONNX Runtime crashed: {self._ended()}") from error
        if state == "failed":
            raise ModelError(content)
        if request[0] == "open":
            self._open.add(request[1])
        return content

    def _start(self) -> subprocess.Popen[bytes]:
        if self._running is None:
            command = [sys.executable, "-m", "fuseline.engine.verification.serve"]
            self._running = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            atexit.register(self.stop)
        return self._running

    def _ended(self) -> str:
        assert self._running is not None
        code = self._running.wait()
        self._running = None
        self._open.clear()
        return f"its process ended by signal {-code}" if code < 0 else f"its process ended with code {code}"

    def holds(self, number: int) -> bool:
        return number in self._open

    def forget(self, number: int) -> None:
        """Close at the next request: this is called from finalizers, at any time."""
        self._closed.add(number)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


_process = _Process()
_numbers = itertools.count(1)


def session(model: Model) -> IsolatedSession:
    """A session on the model with ONNX Runtime's optimisations off, on one thread."""
    needed = [str(path) for path in libraries()]
    if weight_bytes(model.ir) <= INLINE_LIMIT:
        inlined = ir.external_data.load_to_model(model.to_ir())
        return _opened(serialize(inlined).SerializeToString(), needed)
    with tempfile.TemporaryDirectory(prefix="fuseline-") as folder:
        path = Path(folder) / "model.onnx"
        model.save(path, external=True)
        return _opened(str(path), needed)


def _opened(source: str | bytes, needed: list[str]) -> IsolatedSession:
    number = next(_numbers)
    try:
        inputs, outputs = _process.ask("open", number, source, needed)
    except Crashed:
        raise
    except ModelError as error:
        raise ModelError(f"ONNX Runtime refuses the model: {runtime.refusal(error)}") from error
    return IsolatedSession(_process, number, inputs, outputs)
