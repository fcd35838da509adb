"""The native AdamW as a torch optimizer, over torch's own memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fuseline.kernels.loader import native

__all__ = ["FusedAdamW"]


class FusedAdamW(torch.optim.Optimizer):
    """``torch.optim.AdamW`` in one pass over memory, clipping and zeroing of gradients included.

    Parameters are contiguous float32 on the CPU. ``state_dict`` has the layout of torch's AdamW (``step``,
    ``exp_avg``, ``exp_avg_sq``), so checkpoints move between the two. ``max_norm`` clips the gradients by
    their global norm over every group, as ``clip_grad_norm_`` before the step would; ``zero_grads`` leaves
    them zero; ``skip_nonfinite`` leaves everything alone when a gradient is not finite. ``grad_norm`` is the
    norm of the last step's gradients, where one of these asked for it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        max_norm: float = 0.0,
        zero_grads: bool = False,
        skip_nonfinite: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.max_norm = max_norm
        self.zero_grads = zero_grads
        self.skip_nonfinite = skip_nonfinite
        self.grad_norm: float | None = None
        self._step = _entry_point()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        slots = [slot for group in self.param_groups for slot in self._slots(group)]
        if slots:
            self._update(slots)
        return loss

    def _slots(self, group: dict[str, Any]) -> list[tuple[torch.Tensor, dict[str, Any], dict[str, Any]]]:
        slots = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            _check(parameter, "parameter")
            _check(parameter.grad, "gradient")
            state = self.state[parameter]
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
                state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            slots.append((parameter, state, group))
        return slots

    def _update(self, slots: list[tuple[torch.Tensor, dict[str, Any], dict[str, Any]]]) -> None:
        parameters = [parameter for parameter, _, _ in slots]
        states = [state for _, state, _ in slots]
        groups = [group for _, _, group in slots]
        norm = ctypes.c_double(0.0)
        outcome = self._step(
            len(slots),
            _pointers(parameters),
            _pointers([p.grad for p in parameters if p.grad is not None]),
            _pointers([state["exp_avg"] for state in states]),
            _pointers([state["exp_avg_sq"] for state in states]),
            _integers([p.numel() for p in parameters]),
            _integers([int(state["step"]) + 1 for state in states]),
            _doubles([float(group["lr"]) for group in groups]),
            _doubles([float(group["weight_decay"]) for group in groups]),
            _doubles([float(group["betas"][0]) for group in groups]),
            _doubles([float(group["betas"][1]) for group in groups]),
            _doubles([float(group["eps"]) for group in groups]),
            ctypes.c_double(self.max_norm),
            int(self.zero_grads),
            int(self.skip_nonfinite),
            torch.get_num_threads(),
            ctypes.byref(norm),
        )
        if outcome < 0:
            raise RuntimeError("the native AdamW step failed: out of memory")
        self.grad_norm = norm.value if self.max_norm > 0 or self.skip_nonfinite else None
        if outcome == 0:
            for state in states:
                state["step"] += 1


def _check(tensor: torch.Tensor, role: str) -> None:
    if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or not tensor.is_contiguous():
        layout = "contiguous" if tensor.is_contiguous() else "not contiguous"
        raise ValueError(
            f"FusedAdamW takes contiguous float32 tensors on the CPU; a {role} of shape "
            f"{tuple(tensor.shape)} is {tensor.dtype} on {tensor.device}, {layout}. "
            "Use torch.optim.AdamW for this model"
        )


def _pointers(tensors: list[Any]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def _integers(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _doubles(values: list[float]) -> Any:
    return (ctypes.c_double * len(values))(*values)


def _entry_point() -> Any:
    function = native().fuseline_adamw
    function.restype = ctypes.c_int
    return function
