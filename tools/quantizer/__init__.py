"""Quantization: the configuration, the ladder of trials, and the report on what became of the model."""

from fuseline.tools.quantizer.config import Config, load_config
from fuseline.tools.quantizer.quantize import Outcome, quantize

__all__ = ["Config", "Outcome", "load_config", "quantize"]
