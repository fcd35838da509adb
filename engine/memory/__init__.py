"""How much memory a graph needs while it runs, and who holds it."""

from fuseline.engine.memory.origins import Origin
from fuseline.engine.memory.simulation import Holder, Simulation
from fuseline.engine.memory.sizes import at_sizes, symbols

__all__ = ["Holder", "Origin", "Simulation", "at_sizes", "symbols"]
