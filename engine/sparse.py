"""Sparse tensors of a file, made dense: nothing behind the reading of models knows them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from fuseline.engine.errors import ModelError

__all__ = ["every_graph", "make_dense"]

_LARGEST = 1 << 31
"""Bytes of one tensor, beyond which it had better stay sparse."""


def make_dense(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with dense initializers and constants for its sparse ones; itself if there are none."""
    if not any(_sparse_initializers(graph) or _sparse_constants(graph) for graph in every_graph(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in every_graph(copy):
        for sparse in _sparse_initializers(graph):
            graph.initializer.append(_dense(sparse, sparse.values.name))
        if isinstance(graph, onnx.GraphProto):
            graph.ClearField("sparse_initializer")
        for attribute in _sparse_constants(graph):
            tensor = _dense(attribute.sparse_tensor, "")
            attribute.Clear()
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    return copy


def every_graph(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph, the functions, and everything inside."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def _sparse_initializers(graph: onnx.GraphProto | onnx.FunctionProto) -> list[onnx.SparseTensorProto]:
    return list(graph.sparse_initializer) if isinstance(graph, onnx.GraphProto) else []


def _sparse_constants(graph: onnx.GraphProto | onnx.FunctionProto) -> list[AttributeProto]:
    constants = (node for node in graph.node if node.op_type == "Constant")
    return [a for node in constants for a in node.attribute if a.type == AttributeProto.SPARSE_TENSOR]


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    """Indices are positions in the flat tensor, or one per axis."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    if int(np.prod(shape, dtype=object)) * values.dtype.itemsize > _LARGEST:
        raise ModelError(
            f"the sparse tensor {name!r} of shape {list(shape)} would be too large as a dense one"
        )
    dense = np.zeros(shape, values.dtype)
    try:
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
        dense.reshape(-1)[flat] = values
    except (ValueError, IndexError) as error:
        raise ModelError(f"the sparse tensor {name!r} has indices outside its shape {list(shape)}") from error
    if flat.size and flat.min() < 0:
        raise ModelError(f"the sparse tensor {name!r} has indices outside its shape {list(shape)}")
    return numpy_helper.from_array(dense, name)
