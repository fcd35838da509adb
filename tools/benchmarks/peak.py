"""What this processor's instruction for products in bf16 can do at most: the limit of every such kernel."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["Bf16Peak"]

_REGISTERS = 24
_UPDATES = "".join(f'"vdpbf16ps %%zmm30, %%zmm31, %%zmm{i}\\n"' for i in range(_REGISTERS))
_CLOBBERED = ", ".join(f'"xmm{i}"' for i in (*range(_REGISTERS), 30, 31))
_SOURCE = f"""
extern "C" void updates(long rounds) {{
  asm volatile("vpxord %%zmm30, %%zmm30, %%zmm30\\nvpxord %%zmm31, %%zmm31, %%zmm31" ::: {_CLOBBERED});
  for (long round = 0; round < rounds; ++round) asm volatile({_UPDATES} ::: {_CLOBBERED});
}}
"""
_ROUNDS = 1_000_000
_FLOPS = 16 * 2 * 2  # of one instruction: sixteen sums of two products


class Bf16Peak:
    """Independent products on every thread, operands and sums in registers; memory has no part in it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        with tempfile.TemporaryDirectory(prefix="fuseline-peak-") as folder:
            source, library = Path(folder, "peak.cc"), Path(folder, "peak.so")
            source.write_text(_SOURCE)
            compiler = os.environ.get("CXX", "c++")
            subprocess.run(
                [compiler, "-O2", "-mavx512f", "-shared", "-fPIC", source, "-o", library], check=True
            )
            self._updates = ctypes.CDLL(str(library)).updates
        self._updates.argtypes, self._updates.restype = [ctypes.c_long], None

    def run(self) -> None:
        list(self._pool.map(self._updates, [_ROUNDS] * self._threads))

    def flops(self, seconds: float) -> float:
        """Per second, given how long a run takes."""
        return self._threads * _ROUNDS * _REGISTERS * _FLOPS / seconds
