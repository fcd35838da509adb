"""From a torch module to an `onnx_ir` model: torch.export, then torch.onnx's translation, nothing folded."""

from __future__ import annotations

import io
import logging
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

import onnx_ir as ir
import torch
from torch import Tensor, nn

from fuseline.exporters.custom_functions import check_linear, traced_functions
from fuseline.exporters.errors import ExportError
from fuseline.exporters.failures import explain
from fuseline.exporters.hooks import check_backward_hooks, refused_tensor_hooks
from fuseline.exporters.inputs import Input
from fuseline.exporters.stop_gradients import inference_mode_as_no_grad, keep_stops, stop_translations
from fuseline.exporters.torchlib import remembered_translations
from fuseline.exporters.translations import training_translations

__all__ = ["trace", "translate"]


def trace(
    module: nn.Module, inputs: Sequence[Input], example: Sequence[Tensor], *, train: bool
) -> torch.export.ExportedProgram:
    """Run torch.export with exactly the dynamic axes that the inputs declare.

    With `train`, autograd's meaning is kept: where gradients stop, and backwards that are the model's own.
    """
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(dict.fromkeys(item.dynamic, dynamic) for item in inputs)
    # Without size-obliviousness an axis that ever meets a 1 is specialised.
    oblivious = torch.fx.experimental._config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    with _quiet(), oblivious, _failing_readably(module):
        with _autograd_kept(module) if train else nullcontext():
            program = torch.export.export(module, tuple(example), dynamic_shapes=(shapes,), strict=False)
        if train:
            check_linear(program)
            keep_stops(program)
        return program


@contextmanager
def _autograd_kept(module: nn.Module) -> Iterator[None]:
    """While tracing for training: own backwards become part of the graph, gradient hooks an error."""
    check_backward_hooks(module)
    with torch.enable_grad(), refused_tensor_hooks(), traced_functions(), inference_mode_as_no_grad():
        yield


def translate(
    program: torch.export.ExportedProgram,
    module: nn.Module,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
) -> ir.Model:
    """Translate the exported program of a module to ONNX, without any optimisation."""
    with _quiet(), _failing_readably(module, _stack_traces(program)), remembered_translations():
        result = torch.onnx.export(
            program,
            dynamo=True,
            optimize=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            custom_translation_table={**training_translations(), **stop_translations()},
            verbose=False,
        )
    assert result is not None
    return result.model


def _stack_traces(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Operator → where the model's code calls it first."""
    found: dict[str, str] = {}
    for node in program.graph.nodes:
        name = getattr(node.target, "_overloadpacket", None)
        found.setdefault(str(name), node.meta.get("stack_trace") or "")
    return found


@contextmanager
def _failing_readably(module: nn.Module, traces: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn torch's page-long errors into one message, the full text going to a log file."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        log = Path(tempfile.mkstemp(prefix="fuseline-export-", suffix=".log")[1])
        log.write_text(traceback.format_exc())
        message, hint = explain(error, traces or {})
        name = type(getattr(module, "model", module)).__name__
        raise ExportError(
            f"{name} cannot be exported: {message}", hint=f"{hint} (full text: {log})"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter warns about training mode and optional packages, and prints graphs when it fails."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
