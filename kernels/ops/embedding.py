"""Rows of a table by index, and the gradient of the table."""

from __future__ import annotations

import numpy as np

from fuseline.kernels.operator import Array, GradientNode, Operator, Sizes, optional, port
from fuseline.kernels.workspace import lines

__all__ = ["EMBEDDING_OPERATORS", "embedding_grad", "touched_rows"]


def embedding(weight: Array, ids: Array, padding_idx: int = -1) -> tuple[Array, ...]:
    return weight[ids], np.array([padding_idx], np.int64)


def embedding_grad(dy: Array, ids: Array, weight: Array, state: Array) -> tuple[Array, ...]:
    dweight = np.zeros_like(weight)
    np.add.at(dweight, ids.reshape(-1), dy.reshape(-1, weight.shape[1]))
    if state[0] >= 0:
        dweight[state[0]] = 0
    return (dweight,)


def embedding_grad_add(total: Array, dy: Array, ids: Array, state: Array) -> tuple[Array, ...]:
    return (total + embedding_grad(dy, ids, total, state)[0],)


def touched_rows(sizes: Sizes) -> int:
    """The sums of the rows that are touched, and one of zeros."""
    return lines((min(sizes["R"], sizes["V"]) + 1) * sizes["D"])


EMBEDDING_OPERATORS = (
    Operator(
        "FusedEmbedding",
        "weight[ids]; the row padding_idx gets no gradient",
        (port("weight", "V,D"), port("ids", "*R", "int64")),
        (port("y", "*R,D"), optional("state", "1", "int64")),
        embedding,
        {"padding_idx": -1},
        (GradientNode("FusedEmbeddingGrad", ("GO(0)", "I(1)", "I(0)", "O(1)"), ("GI(0)",)),),
    ),
    Operator(
        "FusedEmbeddingGrad",
        "sums the rows of dy by index into a table of weight's shape; state is the padding index or -1",
        (port("dy", "*R,D"), port("ids", "*R", "int64"), port("weight", "V,D"), port("state", "1", "int64")),
        (port("dweight", "V,D"),),
        embedding_grad,
    ),
    Operator(
        "FusedEmbeddingGradAdd",
        "adds the gradient of FusedEmbedding to another gradient of its table, touching the rows of ids only",
        (port("total", "V,D"), port("dy", "*R,D"), port("ids", "*R", "int64"), port("state", "1", "int64")),
        (port("dweight", "V,D"),),
        embedding_grad_add,
        workspace=touched_rows,
        in_place=(0,),
    ),
)
