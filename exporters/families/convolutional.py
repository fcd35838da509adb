"""Convolutional image classifiers: no position embedding, so the image size may change."""

from __future__ import annotations

from fuseline.exporters.families.base import Family
from fuseline.exporters.families.registry import register_family

__all__ = ["Convolutional"]


@register_family
class Convolutional(Family):
    model_types = (
        "convnext",
        "convnextv2",
        "regnet",
        "resnet",
    )
    fixed_axes = {"channels": "num_channels"}
