"""Targets: what a processor or an accelerator wants of integers."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fuseline.engine.errors import FuselineError, did_you_mean

__all__ = ["TARGETS", "Target", "detect", "target"]

Integers = Literal["int8", "uint8"]


@dataclass(frozen=True)
class Target:
    """Signedness, symmetry and operators; `why` says what decided them."""

    name: str
    why: str
    weights: Integers = "int8"
    activations: Integers = "uint8"
    symmetric_activations: bool = False
    per_channel: bool = True
    reduce_range: bool = False
    dynamic: bool = True
    qdq: bool = False


TARGETS = {
    t.name: t
    for t in (
        Target("avx2", "pairs of 8-bit products are added in 16 bits: weights of 7 bits", reduce_range=True),
        Target(
            "avx512", "pairs of 8-bit products are added in 16 bits: weights of 7 bits", reduce_range=True
        ),
        Target("avx512_vnni", "8-bit products are added in 32 bits: weights of 8 bits"),
        Target("arm64", "dot products of 8-bit integers, signed activations alike", activations="int8"),
        Target(
            "tensorrt",
            "symmetric signed integers with calibrated ranges, as QuantizeLinear and DequantizeLinear",
            activations="int8",
            symmetric_activations=True,
            dynamic=False,
            qdq=True,
        ),
    )
}


def target(name: str) -> Target:
    """The target of this name; `auto` is this machine's processor."""
    if name == "auto":
        return detect()
    if name not in TARGETS:
        hint = did_you_mean(name, [*TARGETS, "auto"]) or f"the targets are auto, {', '.join(TARGETS)}"
        raise FuselineError(f"there is no target {name!r}", hint=hint)
    return TARGETS[name]


def detect(machine: str | None = None, flags: set[str] | None = None) -> Target:
    """The target that fits a processor, by default this one; an unknown one gets the safe choice."""
    machine = platform.machine().lower() if machine is None else machine
    if machine in ("arm64", "aarch64"):
        return TARGETS["arm64"]
    known = _flags() if flags is None else flags
    if known & {"avx512_vnni", "avx512vnni", "avx_vnni"}:
        return TARGETS["avx512_vnni"]
    return TARGETS["avx512" if "avx512bw" in known else "avx2"]


def _flags() -> set[str]:
    """The processor's instruction sets as Linux names them; nothing where it cannot be asked."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return set()
    for line in information.read_text().splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
