"""What is worked out about a whole graph, once, and kept until the graph changes."""

from fuseline.engine.analysis.analyses import Analyses, Analysis
from fuseline.engine.analysis.contents import Contents
from fuseline.engine.analysis.costs import Costs
from fuseline.engine.analysis.liveness import Lifetime, Liveness
from fuseline.engine.analysis.positions import Positions
from fuseline.engine.analysis.reads import Reads, ancestors

__all__ = [
    "Analyses",
    "Analysis",
    "Contents",
    "Costs",
    "Lifetime",
    "Liveness",
    "Positions",
    "Reads",
    "ancestors",
]
