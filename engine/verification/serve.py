"""The process that runs models for the verifier: requests come in on standard input, answers go out.

Started by `fuseline.engine.verification.isolated`; ONNX Runtime takes this process with it when it crashes,
and no other.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

__all__ = ["main"]


def _open(source: str | bytes, libraries: list[str]) -> Any:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    for library in libraries:
        settings.register_custom_ops_library(library)
    return ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])


class _Server:
    def __init__(self) -> None:
        self.sessions: dict[int, Any] = {}

    def answer(self, request: tuple[Any, ...]) -> Any:
        kind, number, *rest = request
        if kind == "close":
            self.sessions.pop(number, None)
            return None
        if kind == "open":
            session = self.sessions[number] = _open(*rest)
            return [i.name for i in session.get_inputs()], [o.name for o in session.get_outputs()]
        names, feeds = rest
        return self.sessions[number].run(names, feeds)


def main() -> None:
    # Whatever a library prints must not land between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = _Server()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("ok", server.answer(request))
        except Exception as error:  # ONNX Runtime raises a dozen unrelated types
            answer = ("failed", str(error))
        pickle.dump(answer, answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    main()
