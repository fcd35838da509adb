"""Native operators for training on ONNX Runtime: domain ``fuseline``, one shared library, no torch needed."""

from fuseline.kernels.loader import (
    KernelsMissing,
    available,
    instruction_set,
    library_path,
    multiplies_bf16,
    register,
    require,
)
from fuseline.kernels.operator import DOMAIN, VERSION, GradientNode, Operator, Port
from fuseline.kernels.ops import OPERATORS
from fuseline.kernels.records import register_records

__all__ = [
    "DOMAIN",
    "OPERATORS",
    "VERSION",
    "GradientNode",
    "KernelsMissing",
    "Operator",
    "Port",
    "available",
    "instruction_set",
    "library_path",
    "multiplies_bf16",
    "register",
    "require",
]

# Every pass knows the operators from now on, every session where they are built, and the gradient builder
# their gradients.
register_records()
