"""A batch as a data set of its rows."""

from __future__ import annotations

from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["Rows"]


class Rows(Dataset[dict[str, Tensor]]):
    """Example i is row i of every tensor."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(next(iter(self.batch.values())))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: tensor[index] for name, tensor in self.batch.items()}
