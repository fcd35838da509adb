"""Where a node comes from: torch's bulky records become a module path and a source line."""

from __future__ import annotations

import ast
import re

import onnx_ir as ir

__all__ = ["MODULE", "SOURCE", "record_provenance"]

MODULE = "fuseline.module"
SOURCE = "fuseline.source"

_SCOPES = "pkg.torch.onnx.name_scopes"
_TRACE = "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_OWN_FILES = ("exporters/wrapper.py", "exporters/patches.py")


def record_provenance(model: ir.Model, *, prefix: str, root: str) -> None:
    """Write module path and source line on every node; drop what torch had written.

    `root` stands for the whole model, whose own path is empty: its forward's lines, the loss among them, and
    the sizes of inputs that torch reads before any module runs.
    """
    for node in model.graph.all_nodes():
        metadata = node.metadata_props
        module = _module(metadata.get(_SCOPES, ""), prefix) or root
        source = _source(metadata.get(_TRACE, ""))
        metadata.clear()
        metadata[MODULE] = module
        if source:
            metadata[SOURCE] = source
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def _module(scopes: str, prefix: str) -> str:
    """The innermost module: the last scope is the operator itself."""
    if not scopes:
        return ""
    path: list[str] = ast.literal_eval(scopes)
    if len(path) < 2 or path[-2].startswith("_empty_nn_module_stack"):
        return ""
    return path[-2].removeprefix(prefix).strip(".") if path[-2] != prefix.strip(".") else ""


def _source(trace: str) -> str:
    """The innermost line that belongs to the model rather than to torch or to the exporter."""
    frames = [
        (file.rsplit("site-packages/", 1)[-1], line)
        for file, line in _FRAME.findall(trace)
        if not file.endswith(_OWN_FILES)
    ]
    outside = [f for f in frames if not f[0].startswith("torch/")] or frames
    return f"{outside[-1][0]}:{outside[-1][1]}" if outside else ""
