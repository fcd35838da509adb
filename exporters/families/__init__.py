"""The model families: a small class for each that needs one, plus the user's own."""

from __future__ import annotations

from fuseline.exporters.families import ast, convolutional, mamba, wav2vec2, whisper
from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import (
    family_of,
    load_families,
    register_family,
    registered_families,
)

#: Importing a family's module registers it.
BUILT_IN = (ast, convolutional, mamba, wav2vec2, whisper)

__all__ = ["BUILT_IN", "Family", "family_of", "load_families", "register_family", "registered_families"]
