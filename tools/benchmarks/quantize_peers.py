"""Runs in the environments of the peers, which hold no fuseline: each quantizes a file in its own way.

python quantize_peers.py PEER SOURCE TARGET INPUTS.npz MODEL_TYPE HEADS HIDDEN
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def _runnable() -> list[str]:
    """What is quantized dynamically by default, without convolutions: of int8 weights there is no kernel."""
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    return [operator for operator in IntegerOpsRegistry if operator != "Conv"]


def onnxruntime_dynamic(source: Path, target: Path, *_: Any) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source, target, op_types_to_quantize=_runnable(), per_channel=True, weight_type=QuantType.QInt8
    )


def transformers_dynamic(
    source: Path, target: Path, inputs: Path, model_type: str, heads: int, hidden: int
) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        made = optimize_model(str(source), model_type=model_type, num_heads=heads, hidden_size=hidden)
        made.save_model_to_file(str(optimized))
        quantize_dynamic(
            optimized,
            target,
            op_types_to_quantize=_runnable(),
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": 1},
        )


def neural_compressor(source: Path, target: Path, *_: Any) -> None:
    from neural_compressor import PostTrainingQuantConfig, quantization  # type: ignore[import-not-found]

    made = quantization.fit(str(source), PostTrainingQuantConfig(approach="dynamic"))
    made.save(str(target))


def optimum(source: Path, target: Path, *_: Any) -> None:
    from optimum.onnxruntime import ORTQuantizer  # type: ignore[import-not-found]
    from optimum.onnxruntime.configuration import AutoQuantizationConfig  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(source, Path(folder) / "model.onnx")
        quantizer = ORTQuantizer.from_pretrained(folder, file_name="model.onnx")
        config = AutoQuantizationConfig.avx512_vnni(
            is_static=False, per_channel=True, operators_to_quantize=_runnable()
        )
        quantizer.quantize(save_dir=folder, quantization_config=config, file_suffix="q")
        shutil.copy(Path(folder) / "model_q.onnx", target)


def nncf(source: Path, target: Path, inputs: Path, *_: Any) -> None:
    import nncf  # type: ignore[import-not-found]
    import numpy as np
    import openvino  # type: ignore[import-not-found]

    model = openvino.Core().read_model(str(source))
    data = nncf.Dataset([dict(np.load(inputs))])
    made = nncf.quantize(model, data, subset_size=1, model_type=nncf.ModelType.TRANSFORMER)
    openvino.save_model(made, str(target))


PEERS = {
    "onnxruntime": onnxruntime_dynamic,
    "onnxruntime.transformers": transformers_dynamic,
    "neural-compressor": neural_compressor,
    "optimum": optimum,
    "nncf": nncf,
}

if __name__ == "__main__":
    name, source, target, inputs, model_type, heads, hidden = sys.argv[1:]
    PEERS[name](Path(source), Path(target), Path(inputs), model_type, int(heads), int(hidden))
