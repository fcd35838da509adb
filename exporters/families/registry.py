"""Which family answers for which model type."""

from __future__ import annotations

from typing import Any

from fuseline.exporters.errors import ExportError
from fuseline.exporters.families.base import Family

__all__ = ["family_of", "register_family", "registered_families"]

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


def family_of(config: Any) -> Family:
    """The family of a config, by its model type; the default one where none was declared."""
    return _REGISTRY.get(getattr(config, "model_type", ""), Family)()


def registered_families() -> dict[str, type[Family]]:
    """Model type → family, for those that declare something."""
    return dict(_REGISTRY)
