"""Opset and IR version conversion, within what ONNX Runtime 1.19.2 takes."""

from __future__ import annotations

import onnx
import onnx.version_converter
import onnx_ir as ir

from fuseline.engine.errors import ModelError
from fuseline.engine.execution.weights import fill_inputs, weights_as_inputs
from fuseline.engine.model import Model
from fuseline.engine.opset_changes import settle, settlements

__all__ = ["MAXIMUM_IR", "MAXIMUM_OPSET", "convert_opset", "lower_ir"]

MAXIMUM_OPSET = 21
MAXIMUM_IR = 10
# The lowest IR version that may carry a given opset, for the versions that matter here.
_MINIMUM_IR = {21: 10, 20: 9, 19: 9}
# Adapters read constants such as axes; weights they never look at stay out of the message.
_SMALL = 4096


def lower_ir(model: Model, version: int = MAXIMUM_IR) -> bool:
    """Lower the IR version; whether anything changed."""
    if model.ir.ir_version <= version:
        return False
    model.ir.ir_version = version
    return True


def convert_opset(model: Model, target: int) -> bool:
    """Convert the default domain to opset `target` in place, up or down; whether anything changed."""
    source = model.opset()
    if source == target:
        return False
    if not 7 <= target <= onnx.defs.onnx_opset_version():
        raise ModelError(f"opset {target} is out of range 7 … {onnx.defs.onnx_opset_version()}")
    if model.ir.functions:
        raise ModelError(
            "the model has local functions, which the opset converter would drop",
            hint="inline them first with the pass 'inline-functions'",
        )
    settled = settlements(model, target)
    weights = _detach_weights(model)
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(model.ir), target)
    except Exception as error:  # the converter raises RuntimeError and its own types
        reason = str(error).strip().split("\n")[0][:300]
        raise ModelError(f"opset {source} cannot be converted to {target}: {reason}") from error
    finally:
        fill_inputs(model.ir.graph, weights)
    fresh = ir.from_proto(converted)
    fill_inputs(fresh.graph, weights)
    settle(fresh.graphs(), settled)
    _restore_metadata(model.ir, fresh)
    fresh.ir_version = max(model.ir.ir_version, _MINIMUM_IR.get(target, 8))
    model.ir = fresh
    model.name_everything()
    return True


def _detach_weights(model: Model) -> dict[str, ir.TensorProtocol]:
    """Turn large initializers into plain inputs, so that no weight is copied."""
    inputs = {value.name for value in model.graph.inputs}
    return weights_as_inputs(model.ir, lambda name, content: content.nbytes > _SMALL and name not in inputs)


def _restore_metadata(old: ir.Model, new: ir.Model) -> None:
    """The converter drops metadata and node names; a node is known by its first output's name."""
    new.metadata_props.update(old.metadata_props)
    before = {n.outputs[0].name: n for graph in old.graphs() for n in graph if n.outputs}
    for graph in new.graphs():
        for node in graph:
            origin = before.get(node.outputs[0].name) if node.outputs else None
            if origin is not None:
                node.name = origin.name
                node.metadata_props.update(origin.metadata_props)
    for domain, version in old.graph.opset_imports.items():
        if domain not in ("", "ai.onnx"):
            new.graph.opset_imports.setdefault(domain, version)
