"""Calibration: what values a model's tensors take on real data, kept in constant memory and in a file."""

from fuseline.engine.calibration.collect import calibrate
from fuseline.engine.calibration.histogram import Histogram
from fuseline.engine.calibration.observers import OBSERVERS, Observer, choose_range
from fuseline.engine.calibration.table import CalibrationTable, Statistics

__all__ = [
    "OBSERVERS",
    "CalibrationTable",
    "Histogram",
    "Observer",
    "Statistics",
    "calibrate",
    "choose_range",
]
