"""What transformers and convolutional networks are made of, with deviations, so that fusions are met."""

from fuseline.tools.campaigns.fuzz.fragments import activations, attention, blocks, convolutions, norms
from fuseline.tools.campaigns.fuzz.fragments.table import fragment, fragments

__all__ = ["activations", "attention", "blocks", "convolutions", "fragment", "fragments", "norms"]
