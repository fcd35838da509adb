"""The configuration of `fuseline quantize`: typed, from YAML, a model folder or a Hub repository."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fuseline.engine import options
from fuseline.engine.calibration import Observer
from fuseline.engine.errors import FuselineError
from fuseline.engine.settings import read_yaml

__all__ = ["FILE", "Accuracy", "Activations", "Budget", "Calibration", "Config", "Weights", "load_config"]

FILE = "fuseline-quantize.yaml"
"""The name of a configuration in a model folder or a Hub repository."""
Mode = Literal["dynamic", "static", "auto", "weight-only", "float16", "bfloat16"]
Format = Literal["fused", "standard", "qdq"]


def _check_range(
    part: object, name: str, least: float, most: float = math.inf, *, open_: bool = False
) -> None:
    """Refuse a number outside [least, most], or at its lower end where the range is open there."""
    value = getattr(part, name)
    if value is None or (least <= value <= most and not (open_ and value == least)):
        return
    wanted = f"above {least:g}" if open_ else f"at least {least:g}"
    wanted += f" and at most {most:g}" if most < math.inf else ""
    raise FuselineError(f"option {options.kebab(name)!r} must be {wanted}, not {value:g}")


@dataclass(frozen=True)
class Weights:
    """How weights become integers; what is not given is the target's choice."""

    type: Literal["int8", "uint8"] | None = None
    per_channel: bool | None = None
    symmetric: bool = True
    reduce_range: bool | None = None
    smallest: int = 2048
    """Weights with fewer elements stay in float."""
    bits: Literal[4, 8] = 4
    """For mode weight-only."""
    block: Literal[16, 32, 64, 128, 256] = 32
    """For mode weight-only: how many weights of a column share a scale."""
    symmetric_blocks: bool = False
    """For mode weight-only: blocks without zero points."""
    accuracy_level: Literal[0, 1, 4] = 0
    """For mode weight-only: products computed as the runtime likes, in float32, or in int8."""
    method: Literal["rtn", "gptq", "awq"] = "rtn"
    """For mode weight-only: how they are rounded."""

    def __post_init__(self) -> None:
        _check_range(self, "smallest", 0)


@dataclass(frozen=True)
class Activations:
    """How activations become integers in static quantization."""

    type: Literal["int8", "uint8"] | None = None
    symmetric: bool | None = None
    observer: Observer = "min-max"
    percentile: float = 99.99
    smooth: float | None = None
    """SmoothQuant's strength, 0 to 1: how much of the activations' range moves into the weights."""
    outputs: bool = False
    """Quantize results as well as inputs (format qdq)."""

    def __post_init__(self) -> None:
        _check_range(self, "percentile", 0, 100, open_=True)
        _check_range(self, "smooth", 0, 1)


@dataclass(frozen=True)
class Calibration:
    """Where ranges come from."""

    data: str | None = None
    """An .npz of stacked inputs, or module:function that gives batches."""
    samples: int = 256
    batch_size: int = 4
    table: str | None = None
    """A calibration table to use, or to write."""

    def __post_init__(self) -> None:
        _check_range(self, "samples", 1)
        _check_range(self, "batch_size", 1)


@dataclass(frozen=True)
class Accuracy:
    """What must be kept. Without it the model is quantized once, and judged by nobody."""

    metric: str = "agreement"
    """accuracy (of labels), agreement (with the float model), similarity (of outputs), or module:function."""
    data: str | None = None
    """An .npz of stacked inputs with `labels`, or module:function; the calibration data if absent."""
    criterion: Literal["relative", "absolute"] = "relative"
    tolerable_loss: float = 0.01

    def __post_init__(self) -> None:
        _check_range(self, "tolerable_loss", 0)


@dataclass(frozen=True)
class Budget:
    """How long tuning may take: seconds and trials."""

    time: float = 3600.0
    trials: int = 50

    def __post_init__(self) -> None:
        _check_range(self, "time", 0)
        _check_range(self, "trials", 1)


@dataclass(frozen=True)
class Config:
    """Everything that decides what a quantized model becomes."""

    mode: Mode = "dynamic"
    """auto climbs the ladder dynamic, static, without the worst nodes, mixed."""
    target: str = "auto"
    format: Format | None = None
    """fused: ONNX Runtime's own operators; standard: ONNX alone; qdq: pairs that any runtime fuses."""
    pipeline: str | None = None
    """What runs before: `inference` for fused, `quantize-prepare` otherwise; `skip` for nothing."""
    operators: tuple[str, ...] = ()
    """MatMul, Gemm, Attention, Conv, Gather; `everything` for what ONNX Runtime takes by default."""
    exclude: tuple[str, ...] = ()
    """Nodes that stay in float, by name or pattern, or by their torch modules'."""
    weights: Weights = field(default_factory=Weights)
    activations: Activations = field(default_factory=Activations)
    calibration: Calibration = field(default_factory=Calibration)
    accuracy: Accuracy | None = None
    budget: Budget = field(default_factory=Budget)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], *, source: str = "the configuration") -> Config:
        """Typed from plain data; a wrong key or value is an error that says what was meant."""
        made: Config = _bind(cls, dict(given), source)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the YAML form, without what is left to defaults."""
        plain: dict[str, Any] = _plain(self)
        return plain


def load_config(source: str | Path) -> Config:
    """A YAML file, a folder that holds one, or the name of a Hub repository that does."""
    path = Path(source)
    if path.is_dir():
        path = path / FILE
    elif not path.exists() and str(source).count("/") == 1 and path.suffix not in (".yaml", ".yml", ".json"):
        path = _from_hub(str(source))
    if not path.exists():
        raise FuselineError(f"there is no configuration {path}")
    content = read_yaml(path, "configuration")
    if not isinstance(content, dict):
        raise FuselineError(f"{path} holds no mapping of settings")
    return Config.from_dict(content, source=str(path))


def _from_hub(repository: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise FuselineError(
            f"{repository!r} is no file, and reading it from the Hub needs huggingface_hub",
            hint="pip install huggingface_hub",
        ) from None
    try:
        return Path(hf_hub_download(repository, FILE))
    except Exception as error:  # the Hub's client raises many types
        raise FuselineError(
            f"the Hub repository {repository!r} gives no {FILE}: {str(error).splitlines()[0]}"
        ) from error


def _bind(owner: type[Any], given: dict[str, Any], label: str) -> Any:
    types = options.field_types(owner)
    nested: dict[str, Any] = {}
    for key in list(given):
        part = _dataclass_in(types.get(key.replace("-", "_")))
        if part is None:
            continue
        content = given.pop(key)
        if content is None:
            continue
        if not isinstance(content, Mapping):
            raise FuselineError(f"{label}: {key!r} must be a mapping of settings, not {content!r}")
        nested[key.replace("-", "_")] = _bind(part, dict(content), f"{label}: {key}")
    return owner(**options.bind(owner, label, given), **nested)


def _dataclass_in(type_: Any) -> type[Any] | None:
    choices = (type_, *typing.get_args(type_))
    return next((c for c in choices if isinstance(c, type) and dataclasses.is_dataclass(c)), None)


def _plain(instance: Any) -> Any:
    out: dict[str, Any] = {}
    for f in dataclasses.fields(instance):
        value = getattr(instance, f.name)
        if dataclasses.is_dataclass(value):
            inner = _plain(value)
            if inner or f.name == "accuracy":
                out[options.kebab(f.name)] = inner
        elif options.kebab(f.name) in options.changed(instance):
            out[options.kebab(f.name)] = list(value) if isinstance(value, tuple) else value
    return out
