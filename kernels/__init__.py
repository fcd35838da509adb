"""Native operators for training on ONNX Runtime: domain ``fuseline``, one shared library, no torch needed."""

from fuseline.engine import operators
from fuseline.engine.determinism import RATIO_INPUTS
from fuseline.engine.runtime import custom_op_libraries
from fuseline.engine.training import differentiable
from fuseline.engine.training.gradients import gradient_registrars
from fuseline.kernels.gradients import register_gradients
from fuseline.kernels.loader import (
    KernelsMissing,
    available,
    instruction_set,
    library_path,
    register,
    require,
)
from fuseline.kernels.operator import DOMAIN, VERSION, GradientNode, Operator, Port
from fuseline.kernels.ops import OPERATORS

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
    "register",
    "register_gradients",
    "require",
]

# Every session that the engine creates from now on knows the operators, where they are built, and the
# gradient builder knows their gradients.
if library_path not in custom_op_libraries:
    custom_op_libraries.append(library_path)
    gradient_registrars.append(register_gradients)
    differentiable.register(*(f"{DOMAIN}::{o.name}" for o in OPERATORS.values() if o.gradient))
    operators.register(
        *(
            operators.Operator(name=o.name, domain=DOMAIN, declared=o.schema(), shape=o.infer)
            for o in OPERATORS.values()
        )
    )
    # Verification switches dropout off, whichever operator it is part of.
    RATIO_INPUTS.update(
        ((DOMAIN, operator.name), index)
        for operator in OPERATORS.values()
        for index, port in enumerate(operator.inputs)
        if port.name == "ratio"
    )
