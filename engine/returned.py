"""What a graph both takes in and returns is declared twice in a file, and not always alike."""

from __future__ import annotations

import onnx

from fuseline.engine.sparse import every_graph

__all__ = ["declare_returned"]


def declare_returned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with such outputs declared as the inputs are; itself if all of them are.

    Read as it stands, the declaration of the output would count for both, and it may say less, or nothing.
    """
    if not any(_declared_twice(graph) for graph in every_graph(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in every_graph(copy):
        for taken, returned in _declared_twice(graph):
            returned.CopyFrom(taken)
    return copy


def _declared_twice(
    graph: onnx.GraphProto | onnx.FunctionProto,
) -> list[tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]]:
    if isinstance(graph, onnx.FunctionProto):
        return []
    inputs = {info.name: info for info in graph.input}
    pairs = [(inputs[info.name], info) for info in graph.output if info.name in inputs]
    return [(taken, returned) for taken, returned in pairs if taken != returned]
