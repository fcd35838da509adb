"""Types and shapes of one node from ONNX's own operator schemas, for operators without a rule of ours."""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir

from fuseline.engine.constants import constant
from fuseline.engine.model import Model
from fuseline.engine.shapes.dims import Dim, dims_of
from fuseline.engine.shapes.site import Typing

__all__ = ["infer_from_schema"]

_LARGEST_DATA = 256


def infer_from_schema(model: Model, node: ir.Node, opset: int) -> list[Typing] | None:
    """One (dtype, dims) per output, or None where the schema cannot tell."""
    schema = _schema(node.op_type, node.domain, opset if not node.domain else model.opset(node.domain))
    if schema is None or any(v is not None and v.type is None for v in node.inputs):
        return None
    types, data = {}, {}
    for value in node.inputs:
        if value is None or value.name is None or value.type is None:
            continue
        types[value.name] = ir.serde.serialize_type(value.type)
        dims = dims_of(value)
        if dims is not None:
            # Not the shape as it is written: names that promise nothing would come out as if they did.
            ir.serde.serialize_shape_into(types[value.name], ir.Shape(dims))
        array = constant(model, value, at_most=_LARGEST_DATA)
        if array is not None:
            data[value.name] = onnx.numpy_helper.from_array(array, value.name)
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.to_proto(node),
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid("", opset)],
            ir_version=model.ir.ir_version,
        )
    except Exception:  # the schema refuses; whatever is wrong, ONNX Runtime says it better
        return None
    return [_typing(found.get(v.name or "")) for v in node.outputs]


@functools.lru_cache(maxsize=1024)
def _schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_type_and_shape_inference_function else None


def _typing(proto: onnx.TypeProto | None) -> Typing:
    if proto is None or not proto.HasField("tensor_type"):
        return None, None
    tensor = proto.tensor_type
    dtype = ir.DataType(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(_dim(d) for d in tensor.shape.dim)


def _dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    if proto.HasField("dim_value"):
        return proto.dim_value
    return proto.dim_param or None
