"""The pattern language, the matcher, and the report of near misses."""

from fuseline.engine.patterns.explain import Explanation, NearMiss, Site, explain
from fuseline.engine.patterns.fusion import Fusion
from fuseline.engine.patterns.match import Context, Failure, Match
from fuseline.engine.patterns.matcher import Matcher
from fuseline.engine.patterns.pattern import Op, Pattern, one_of
from fuseline.engine.patterns.terms import Capture, Term
from fuseline.engine.rewriting.builder import Builder

__all__ = [
    "Builder",
    "Capture",
    "Context",
    "Explanation",
    "Failure",
    "Fusion",
    "Match",
    "Matcher",
    "NearMiss",
    "Op",
    "Pattern",
    "Site",
    "Term",
    "explain",
    "one_of",
]
