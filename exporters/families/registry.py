"""Which family answers for which model type."""

from __future__ import annotations

import importlib.metadata
import runpy
from functools import cache
from pathlib import Path
from typing import Any

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families.base import Family

__all__ = ["ENTRY_POINT_GROUP", "family_of", "load_families", "register_family", "registered_families"]

ENTRY_POINT_GROUP = "fuseline.families"

_REGISTRY: dict[str, type[Family]] = {}


def register_family(family: type[Family]) -> type[Family]:
    """Make a family known for its model types (usable as a class decorator)."""
    for model_type in family.model_types:
        other = _REGISTRY.get(model_type)
        if other is not None and other.__qualname__ != family.__qualname__:
            raise ExportError(
                f"two families answer for model type {model_type!r}: "
                f"{other.__module__}.{other.__qualname__} and {family.__module__}.{family.__qualname__}",
                hint="unload one of the two plugins",
            )
        _REGISTRY[model_type] = family
    return family


def load_families(path: str | Path) -> None:
    """Run a user's Python file, which registers its families with `register_family`."""
    path = Path(path)
    if not path.is_file():
        raise ExportError(f"there is no plugin file {path}")
    try:
        runpy.run_path(str(path), run_name=f"fuseline_families_{path.stem}")
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"plugin {path} failed to load: {type(error).__name__}: {error}") from error


@cache
def _discover() -> None:
    """Load the families of installed packages, once: importing the entry point registers them."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        entry.load()


def family_of(config: Any) -> Family:
    """The family of a config, by its model type; the default one where none was declared."""
    _discover()
    return _REGISTRY.get(getattr(config, "model_type", ""), Family)()


def registered_families() -> dict[str, type[Family]]:
    """Model type → family, for those that declare something."""
    return dict(_REGISTRY)
