"""How much memory this process holds, and how much it held at the worst moment since that was last forgotten.

What `getrusage` calls the peak is inherited by a process from the one that started it, and never falls.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["forget_peak", "held", "measurable", "peak"]

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measurable() -> bool:
    """Whether the system tells a process its peak, and lets it begin anew."""
    return _STATUS.exists() and _RESET.exists()


def held() -> int:
    """Bytes in memory now."""
    return _bytes("VmRSS")


def peak() -> int:
    """Bytes in memory at the worst moment."""
    return _bytes("VmHWM")


def forget_peak() -> None:
    """The worst moment is now."""
    _RESET.write_text("5", encoding="ascii")


def _bytes(field: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
