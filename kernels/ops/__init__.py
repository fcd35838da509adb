"""Every operator of the library by name."""

from fuseline.kernels.operator import Operator
from fuseline.kernels.ops.attention import ATTENTION_OPERATORS
from fuseline.kernels.ops.attention_rows import ATTENTION_ROWS_OPERATORS
from fuseline.kernels.ops.cross_entropy import CROSS_ENTROPY_OPERATORS
from fuseline.kernels.ops.embedding import EMBEDDING_OPERATORS
from fuseline.kernels.ops.gelu import GELU_OPERATORS
from fuseline.kernels.ops.linear import LINEAR_OPERATORS
from fuseline.kernels.ops.linear_loss import LINEAR_LOSS_OPERATORS
from fuseline.kernels.ops.norm import NORM_OPERATORS
from fuseline.kernels.ops.optimizer import OPTIMIZER_OPERATORS
from fuseline.kernels.ops.rows import ROW_OPERATORS
from fuseline.kernels.ops.weight_gradient import WEIGHT_GRADIENT_OPERATORS

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        *OPTIMIZER_OPERATORS,
        *NORM_OPERATORS,
        *GELU_OPERATORS,
        *EMBEDDING_OPERATORS,
        *CROSS_ENTROPY_OPERATORS,
        *LINEAR_LOSS_OPERATORS,
        *ROW_OPERATORS,
        *WEIGHT_GRADIENT_OPERATORS,
        *ATTENTION_OPERATORS,
        *ATTENTION_ROWS_OPERATORS,
        *LINEAR_OPERATORS,
    )
}
