"""A linear layer, the cross-entropy of its scores and the gradients of both, without a tensor of scores."""

from __future__ import annotations

from fuseline.kernels.operator import Array, Operator, Sizes, optional, port
from fuseline.kernels.ops.cross_entropy import cross_entropy, cross_entropy_grad
from fuseline.kernels.workspace import lines, padded

__all__ = ["LINEAR_LOSS_OPERATORS"]

_FEW_TOKENS, _TOKENS, _CHUNKS = 128, 256, 2
_RANGES, _SMALLEST_RANGE, _CLASSES = 16, 512, 126


def linear_cross_entropy(
    dloss: Array,
    x: Array,
    weight: Array,
    bias: Array,
    labels: Array,
    ignore_index: int = -100,
    reduction: int = 0,
    label_smoothing: float = 0.0,
) -> tuple[Array, ...]:
    scores = x @ weight.T + (bias if bias.size else 0)
    loss, statistics, state = cross_entropy(scores, labels, ignore_index, reduction, label_smoothing)
    (dscores,) = cross_entropy_grad(dloss, scores, labels, statistics, state)
    flat, rows = dscores.reshape(-1, weight.shape[0]), x.reshape(-1, weight.shape[1])
    return dscores @ weight, flat.T @ rows, flat.sum(0) if bias.size else bias, loss


def _ranges(sizes: Sizes) -> int:
    return max(1, min(_RANGES, sizes["V"] // _SMALLEST_RANGE))


def _workspace(sizes: Sizes) -> int:
    """The scores of a chunk, its rows thrice, and sums by ranges of classes."""
    rows, width, classes = (sizes[letter] for letter in "RKV")
    chunks = max(1, -(-rows // min(_TOKENS, max(_FEW_TOKENS, rows // _CHUNKS))))
    tokens, ranges = padded(-(-rows // chunks)), _ranges(sizes)
    pieces = (classes, width, width, padded(width), 3 * ranges, 3, ranges * width)
    return sum(lines(tokens * piece) for piece in pieces)


def _rows_of_weight(sizes: Sizes, threads: int) -> int:
    return min(threads, _ranges(sizes)) * lines(_CLASSES * padded(sizes["K"]))


LINEAR_LOSS_OPERATORS = (
    Operator(
        "FusedLinearCrossEntropy",
        "cross-entropy of x·weightᵀ + bias against class indices and the gradients of it all, by chunks of "
        "rows: the scores are never there as a whole",
        (
            port("dloss", "1"),
            port("x", "*R,K"),
            port("weight", "V,K"),
            port("bias", "V?"),
            port("labels", "*R", "int64"),
        ),
        (optional("dx", "*R,K"), optional("dweight", "V,K"), optional("dbias", "V?"), optional("loss", "()")),
        linear_cross_entropy,
        {"ignore_index": -100, "reduction": 0, "label_smoothing": 0.0},
        workspace=_workspace,
        task_workspace=_rows_of_weight,
        product=True,
        operations=lambda sizes: 6 * sizes["R"] * sizes["K"] * sizes["V"],
        in_place=(1,),
    ),
)
