"""The source files that a model's graph depends on.

Installed packages are known by their versions; a file of the user's own is known by its content, and so is
every file of the user's own that it uses.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

from torch import nn

__all__ = ["file_hash", "source_hashes"]

#: Their versions are part of every key, and so are fuseline's sources.
_KNOWN = ("builtins", "torch", "transformers", "peft", "fuseline")


def source_hashes(model: nn.Module) -> dict[str, str]:
    """Module name → hash, for the code of all classes in the model and what that code refers to."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    found: dict[str, str] = {}
    pending = [kind.__module__ for kind in kinds if not _is_known(kind.__module__)]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        module = sys.modules.get(name)
        found[name] = _hash_of(name, module)
        if module is not None and not _is_installed(module):
            pending.extend(_used_by(module))
    return dict(sorted(found.items()))


def file_hash(path: Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _is_known(name: str) -> bool:
    return name.split(".", 1)[0] in _KNOWN


def _used_by(module: ModuleType) -> set[str]:
    """The user's own modules that names in this module come from."""
    names = {
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in vars(module).values()
    }
    own = {name for name in names if isinstance(name, str) and not _is_known(name)}
    return {name for name in own if name in sys.modules and not _is_installed(sys.modules[name])}


@cache
def _installed_under() -> tuple[str, ...]:
    return tuple({os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")})


def _is_installed(module: ModuleType) -> bool:
    file: str | None = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"
    return os.path.realpath(file).startswith(_installed_under())


def _hash_of(name: str, module: ModuleType | None) -> str:
    file = getattr(module, "__file__", None)
    source = Path(inspect.getsourcefile(module) or file) if module is not None and file else None
    if source is not None and source.is_file():
        return file_hash(source)
    if module is not None and _is_installed(module):
        return "compiled"
    return f"process {os.getpid()}"  # typed into a session: good for this process alone
