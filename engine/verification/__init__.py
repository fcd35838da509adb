"""Numeric equivalence of two models: outputs, and for training graphs gradients."""

from fuseline.engine.verification.compare import Mismatch, compare
from fuseline.engine.verification.verifier import Quantity, Report, Results, Verifier

__all__ = [
    "Mismatch",
    "Quantity",
    "Report",
    "Results",
    "Verifier",
    "compare",
]
