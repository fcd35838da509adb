"""What can be exported: a model, a folder, a config, a factory; each becomes a torch module here."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fuseline.exporters.errors import ExportError
from fuseline.exporters.tasks import Task, find_task, infer_task
from fuseline.exporters.wrapper import Loss

__all__ = ["Source", "is_transformers", "resolve"]

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


@dataclass
class Source:
    """A module ready to be exported, and what came with it."""

    module: nn.Module
    label: str
    task: Task | None = None
    example_inputs: Mapping[str, Tensor] | tuple[Tensor, ...] | None = None
    loss: Loss | None = None
    #: What the user should know about how the module came to be.
    notes: list[str] = field(default_factory=list)


def resolve(source: Any, *, task: str | None = None, attention: str | None = None, seed: int = 0) -> Source:
    """Make a module of whatever the user gave."""
    if isinstance(source, nn.Module):
        return _from_module(source, task)
    if hasattr(source, "model_type") and hasattr(source, "to_dict"):
        return _from_config(source, task, attention, seed)
    if isinstance(source, Path) or (isinstance(source, str) and Path(source).exists()):
        return _from_path(Path(source), task, attention, seed)
    if isinstance(source, str) and ":" in source:
        return _from_factory(source, task)
    raise ExportError(
        f"{source!r} is nothing that can be exported",
        hint="give a model, a config, a model folder, a config.json, 'module:factory' or an .onnx file",
    )


def is_transformers(module: nn.Module) -> bool:
    """Whether this is a transformers model, whose inputs and outputs are known by name."""
    return hasattr(module, "config") and hasattr(module, "main_input_name")


def _from_module(module: nn.Module, task: str | None) -> Source:
    label = type(module).__name__
    if not is_transformers(module):
        return Source(module, label, find_task(task) if task else None)
    return Source(module, label, find_task(task) if task else _guess(label, module.config))


def _guess(label: str, config: Any) -> Task | None:
    """The task that a class is for, by its name; with inputs that are given, none has to be known."""
    try:
        return infer_task(label, config)
    except ExportError:
        return None


def _from_config(config: Any, task: str | None, attention: str | None, seed: int) -> Source:
    import transformers

    if attention:
        config._attn_implementation = attention
    architecture = (getattr(config, "architectures", None) or [None])[0]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if task is None and architecture and hasattr(transformers, architecture):
            module = getattr(transformers, architecture)(config)
        else:
            module = _auto_class(_settled(task, config)).from_config(config)
    made = _from_module(module, task)
    made.notes.append(f"weights are random (seed {seed})")
    return made


def _from_path(path: Path, task: str | None, attention: str | None, seed: int) -> Source:
    from transformers import AutoConfig

    folder = path if path.is_dir() else path.parent
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ExportError(f"{path} holds no config.json", hint="give a folder written by save_pretrained")
    try:
        config = AutoConfig.from_pretrained(file)
    except (ValueError, OSError, json.JSONDecodeError) as error:
        raise ExportError(f"{file} is no transformers config: {str(error).splitlines()[0]}") from error
    if not path.is_dir() or not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        return _from_config(config, task, attention, seed)
    chosen = find_task(task) if task else _settled(None, config)
    options = {"attn_implementation": attention} if attention else {}
    module = _auto_class(chosen).from_pretrained(folder, config=config, local_files_only=True, **options)
    return Source(module, type(module).__name__, chosen)


def _settled(task: str | None, config: Any) -> Task:
    if task is not None:
        return find_task(task)
    architecture = (getattr(config, "architectures", None) or [None])[0]
    if architecture is None:
        raise ExportError("the config names no architecture", hint="say the task, e.g. task='causal-lm'")
    return infer_task(architecture, config)


def _auto_class(task: Task) -> Any:
    import transformers

    return getattr(transformers, task.auto_class)


def _from_factory(text: str, task: str | None) -> Source:
    """`package.module:function` gives a module, or (module, example inputs), or those and a loss."""
    module_name, _, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module_name), name)()
    except (ImportError, AttributeError) as error:
        raise ExportError(f"there is no factory {text!r}: {error}") from error
    finally:
        sys.path.pop(0)
    module, *rest = made if isinstance(made, tuple) else (made,)
    if not isinstance(module, nn.Module):
        raise ExportError(f"{text} returned {type(module).__name__}, not a torch module")
    result = _from_module(module, task)
    result.example_inputs = rest[0] if rest else None
    result.loss = rest[1] if len(rest) > 1 else None
    return result
