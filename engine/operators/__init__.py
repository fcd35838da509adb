"""One record per operator: what passes, inference, gradients, verification and sessions know about it."""

from fuseline.engine.operators.custom import custom
from fuseline.engine.operators.effects import EFFECTS
from fuseline.engine.operators.elementwise import ELEMENTWISE
from fuseline.engine.operators.microsoft import MICROSOFT
from fuseline.engine.operators.movement import MOVEMENT
from fuseline.engine.operators.normalization import NORMALIZATION
from fuseline.engine.operators.operator import Operator, Trait
from fuseline.engine.operators.products import PRODUCTS
from fuseline.engine.operators.reductions import REDUCTIONS
from fuseline.engine.operators.registry import libraries, lookup, record, records, register

__all__ = ["Operator", "Trait", "custom", "libraries", "lookup", "record", "records", "register"]

register(*ELEMENTWISE, *MOVEMENT, *REDUCTIONS, *PRODUCTS, *NORMALIZATION, *EFFECTS, *MICROSOFT)
