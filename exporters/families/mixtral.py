"""Mixture of experts: all experts in one batched product, since a loop over tokens cannot be traced."""

from __future__ import annotations

from typing import Any

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family

__all__ = ["MixtureOfExperts"]


@register_family
class MixtureOfExperts(Family):
    model_types = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe")

    def configure(self, config: Any, *, train: bool) -> None:
        config._experts_implementation = "batched_mm"
