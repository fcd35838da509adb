"""Properties of a model that passes establish, need and undo."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Property"]


class Property(StrEnum):
    """What holds of a model; the text is what stands in files and messages."""

    TRAINING = "training"
    """It is meant to be trained: made with a loss."""
    TRAINABLE = "trainable"
    """Every node between the weights and the loss has a gradient."""
    DIFFERENTIATED = "differentiated"
    """The gradients are in the graph."""
    MIXED_PRECISION = "mixed precision"
    """Matrix products work on rounded operands."""
    ACCUMULATING = "accumulating"
    """Gradients are added to those of earlier runs."""
    OPTIMIZER = "optimizer"
    """The graph updates its weights itself."""
    ORDERED = "ordered"
    """Nodes overwrite what nodes in front of them read: it is right in the order of the graph alone."""
