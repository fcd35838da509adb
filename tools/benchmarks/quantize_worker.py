"""Runs in environments that hold no fuseline: loads quantized models and times them, on request.

    python quantize_worker.py

Requests and answers are lines of JSON: {"load": NAME, "kind": …, "path": …, "inputs": NPZ, "threads": N},
then {"run": NAME}, which answers with the seconds of one run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _onnxruntime(path: str, inputs: dict[str, Any], threads: int) -> Callable[[], Any]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    fed = {k: v for k, v in inputs.items() if k in names}
    return lambda: session.run(None, fed)


def _openvino(path: str, inputs: dict[str, Any], threads: int) -> Callable[[], Any]:
    # Only the environment of this peer has it.
    import openvino  # type: ignore[import-not-found]

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    names = {n for port in request.model_inputs for n in port.get_names()}
    fed = {k: v for k, v in inputs.items() if k in names}
    return lambda: request.infer(fed)


def _torch(path: str, inputs: dict[str, Any], threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    model = torch.load(path, weights_only=False).eval()
    fed = {k: torch.from_numpy(v) for k, v in inputs.items()}

    def run() -> Any:
        with torch.inference_mode():
            return model(**fed)

    return run


KINDS = {"onnxruntime": _onnxruntime, "openvino": _openvino, "torch": _torch}


def _seconds(run: Callable[[], Any]) -> float:
    """One run, behind one that is not counted; of short ones the mean of a few."""
    run()
    began = time.perf_counter()
    count = 0
    while count == 0 or (count < 5 and time.perf_counter() - began < 0.15):
        run()
        count += 1
    return (time.perf_counter() - began) / count


def main() -> int:
    loaded: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "load" in request:
                inputs = dict(np.load(request["inputs"]))
                run = KINDS[request["kind"]](request["path"], inputs, request["threads"])
                run()
                loaded[request["load"]] = run
            else:
                answer["seconds"] = _seconds(loaded[request["run"]])
        except Exception as error:  # what a peer cannot run is told, not fatal
            answer["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[
                :300
            ]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
