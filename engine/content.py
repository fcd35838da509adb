"""What a file may hold that no graph can: names that are not text, attributes and tensors without a type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from fuseline.engine.errors import ModelError, root_cause

__all__ = ["check_content"]

# A larger tensor is read when it is needed; decoding all of them would double the time of loading.
_LOOKED_INTO = 1 << 16


def check_content(ir_model: ir.Model, source: str) -> list[ir.ExternalTensor]:
    """Raise a ModelError on the first fault. Later ones would end in onnx's own code, some in an abort.

    Gives the tensors that lie in other files, which were not looked into.
    """
    tensors = list(_initializers(ir_model))
    for root in (ir_model.graph, *(f.graph for f in ir_model.functions.values())):
        _check_text((v.name for v in (*root.inputs, *root.outputs)), source)
        for node in root.all_nodes():
            _check_text((node.op_type, node.domain, node.name, *node.attributes), source)
            _check_text((v.name for v in (*node.inputs, *node.outputs) if v is not None), source)
            for attribute in node.attributes.values():
                _check_attribute(node, attribute, source)
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                    # Not as_tensor(), which asks the tensor for its size and so fails by itself.
                    tensors.append(attribute.value)
    # By class, since isinstance asks onnx_ir's protocols one attribute at a time.
    external = [tensor for tensor in tensors if tensor.__class__ is ir.ExternalTensor]
    for tensor in tensors:
        if tensor.__class__ is not ir.ExternalTensor:
            _check_tensor(tensor, source)
    return external


def _check_text(names: Iterable[str | None], source: str) -> None:
    """Protobuf hands out a name that is not UTF-8 as bytes."""
    for name in names:
        if name is not None and not isinstance(name, str):
            raise ModelError(f"{source}: the name {name!r} is not UTF-8 text")


def _check_attribute(node: ir.Node, attribute: ir.Attr, source: str) -> None:
    if attribute.type == ir.AttributeType.UNDEFINED:
        raise ModelError(f"{source}: attribute {attribute.name!r} of node {node.name!r} has no type")


def _initializers(ir_model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in ir_model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _check_tensor(tensor: ir.TensorProtocol, source: str) -> None:
    try:
        if tensor.dtype != ir.DataType.STRING and tensor.nbytes <= _LOOKED_INTO:
            tensor.numpy()
    except Exception as error:  # onnx_ir and numpy raise several types
        raise ModelError(
            f"{source}: the tensor {tensor.name!r} cannot be read: {root_cause(error)}"
        ) from error
