"""Exporters: torch modules and transformers models to ONNX graphs that can be trained."""

from __future__ import annotations

from fuseline.exporters.errors import ExportError
from fuseline.exporters.export import export
from fuseline.exporters.families import Family, register_family
from fuseline.exporters.inputs import Input
from fuseline.exporters.tasks import TASKS, Task

__all__ = ["TASKS", "ExportError", "Family", "Input", "Task", "export", "register_family"]
