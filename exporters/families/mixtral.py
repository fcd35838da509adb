"""Mixture of experts: all experts in one batched product, since a loop over tokens cannot be traced."""

from __future__ import annotations

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family

__all__ = ["MixtureOfExperts"]


@register_family
class MixtureOfExperts(Family):
    model_types = ("granitemoe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe")
    settings = {"_experts_implementation": "batched_mm"}
