"""Metrics: one number that says how good a model is; higher is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fuseline.engine import runtime
from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.tools.quantizer.config import Accuracy
from fuseline.tools.quantizer.data import Batches, named_object

__all__ = ["Metric", "Predict", "main_output", "metric_of", "predictor", "signal_to_noise"]

Array = npt.NDArray[Any]
Predict = Callable[[Mapping[str, Array]], dict[str, Array]]
Metric = Callable[[Predict], float]


def predictor(model: Model) -> Predict:
    """A function from inputs to outputs on ONNX Runtime as it will be deployed, its optimisations on."""
    running = runtime.session(model, optimize="all")
    return lambda inputs: runtime.run(running, inputs)


def main_output(outputs: Mapping[str, Array]) -> Array:
    """The output that is judged: `logits`, or the first one of real numbers."""
    if "logits" in outputs:
        return outputs["logits"]
    for array in outputs.values():
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            return array
    raise FuselineError("the model has no output of real numbers to judge", hint="give a metric of your own")


def metric_of(accuracy: Accuracy, batches: Batches, float_model: Predict) -> Metric:
    """The metric that a configuration names, over these batches."""
    if accuracy.metric == "accuracy":
        if not batches.labelled:
            raise FuselineError(
                f"{batches.origin} has no labels, so accuracy cannot be measured",
                hint="add an array `labels`, or use the metric agreement",
            )
        return lambda predict: _accuracy(predict, batches)
    if accuracy.metric in ("agreement", "similarity"):
        expected = [main_output(float_model(b)) for b in batches.inputs()]
        judge = _agreement if accuracy.metric == "agreement" else _similarity
        return lambda predict: judge(predict, batches, expected)
    made = named_object(accuracy.metric)
    if not callable(made):
        raise FuselineError(f"the metric {accuracy.metric!r} is not a function of predict")
    return lambda predict: _asked(made, accuracy.metric, predict)


def _asked(metric: Callable[[Predict], Any], name: str, predict: Predict) -> float:
    """What the user's function says of a model."""
    try:
        return float(metric(predict))
    except FuselineError:
        raise
    except Exception as error:  # code of the user's own
        raise FuselineError(f"the metric {name!r} gave no number: {type(error).__name__}: {error}") from error


def _accuracy(predict: Predict, batches: Batches) -> float:
    right = total = 0
    for batch in batches:
        assert batch.labels is not None
        found = main_output(predict(batch.inputs)).argmax(-1)
        right += int((found == batch.labels).sum())
        total += int(np.size(batch.labels))
    return right / total


def _agreement(predict: Predict, batches: Batches, expected: list[Array]) -> float:
    same = total = 0
    for inputs, before in zip(batches.inputs(), expected, strict=True):
        after = main_output(predict(inputs))
        same += int((after.argmax(-1) == before.argmax(-1)).sum())
        total += before.argmax(-1).size
    return same / total


def _similarity(predict: Predict, batches: Batches, expected: list[Array]) -> float:
    """The mean cosine between the outputs of each example."""
    cosines: list[float] = []
    for inputs, before in zip(batches.inputs(), expected, strict=True):
        after = main_output(predict(inputs))
        a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (before, after))
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines.extend((a * b).sum(axis=1) / np.maximum(norms, 1e-30))
    return float(np.mean(cosines))


def signal_to_noise(expected: Array, actual: Array) -> float:
    """In decibels; infinite where both are equal."""
    signal = float((expected.astype(np.float64) ** 2).mean())
    noise = float(((expected.astype(np.float64) - actual) ** 2).mean())
    if noise == 0.0:
        return float("inf")
    return float(10 * np.log10(max(signal, 1e-300) / noise))
