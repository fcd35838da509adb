"""torch's ZeroRedundancyOptimizer, made fit for accelerate and for the Trainer's checkpoints."""

from __future__ import annotations

from typing import Any

from torch.distributed.optim import ZeroRedundancyOptimizer

__all__ = ["ShardedOptimizer", "consolidate"]


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """Every process keeps the moments of its share of the parameters.

    Give the Trainer `optimizer_cls_and_kwargs=(ShardedOptimizer, {"optimizer_class": AdamW, "lr": …})`.
    Accelerate asks for the state before there is any; that state is empty here and no error.
    """

    def state_dict(self) -> dict[str, Any]:
        if not self._all_state_dicts:  # type: ignore[attr-defined]
            return {}
        state: dict[str, Any] = super().state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            super().load_state_dict(state_dict)


def consolidate(optimizer: Any) -> None:
    """Gather a sharded optimizer's state on the first process, before that one saves it; called on all."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if isinstance(inner, ZeroRedundancyOptimizer):
        inner.consolidate_state_dict(to=0)
