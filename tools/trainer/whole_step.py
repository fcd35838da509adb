"""The trainer's side of the native step: its optimizer, its training step, its gradient norm."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer as StockTrainer
from transformers import TrainerCallback

from fuseline.tools.trainer.arguments import ADAMW
from fuseline.tools.trainer.bridge import Bridge
from fuseline.tools.trainer.compiler import Variant
from fuseline.tools.trainer.identity import codes, is_versioned
from fuseline.tools.trainer.native import NativeAdamW, NativeStep

__all__ = ["WholeStep", "loss_obstacles", "obstacles"]

#: Events between the backward and the end of the step, when gradients are there to be read.
_AROUND_THE_STEP = ("on_pre_optimizer_step", "on_optimizer_step")
_OPTIMIZERS = (ADAMW, "adamw_torch", "adamw_torch_fused")


def obstacles(trainer: Any) -> list[str]:
    """Why an optimizer inside the graph cannot serve this trainer as it is now; empty if it can."""
    args, reasons = trainer.args, []
    if str(getattr(args.optim, "value", args.optim)) not in _OPTIMIZERS:
        reasons.append(f"optim={args.optim!r} is not AdamW")
    if args.world_size > 1 or trainer.is_deepspeed_enabled:
        reasons.append("gradients have to be exchanged between processes")
    if trainer.compiler.settings.memory_budget is not None:
        reasons.append("a memory budget is kept by steps without the optimizer in them")
    reasons += loss_obstacles(trainer)
    if args.fp16:
        reasons.append("fp16 needs a loss scale that changes from step to step")
    kinds = {p.dtype for p in trainer.bridge.model.parameters()} - {torch.float32}
    if kinds:
        reasons.append(f"weights are {sorted(str(k).removeprefix('torch.') for k in kinds)[0]}, not float32")
    if getattr(getattr(trainer.model, "active_peft_config", None), "is_prompt_learning", False):
        reasons.append("an adapter puts prompts of its own in front of the inputs")
    reasons += _watchers(trainer)
    return reasons


def _watchers(trainer: Any) -> list[str]:
    """Whoever would see or change gradients between backward and update, where there is no between."""
    model = trainer.bridge.model
    reasons = []
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()):
        reasons.append("a parameter has a gradient hook")
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        reasons.append("the model has hooks")
    gathers = trainer.args.gradient_accumulation_steps > 1
    events = (*_AROUND_THE_STEP, "on_substep_end") if gathers else _AROUND_THE_STEP
    for callback in trainer.callback_handler.callbacks:
        if any(getattr(type(callback), e) is not getattr(TrainerCallback, e) for e in events):
            reasons.append(f"{type(callback).__name__} may look at gradients around the optimizer's step")
    read = [name for kind in type(trainer).__mro__ for name in _read_by_steps(kind)]
    if any(name == "grad" or name.startswith("clip_grad") for name in read):
        reasons.append("training_step is overridden and reads gradients")
    return reasons


def _read_by_steps(kind: type[Any]) -> Iterator[str]:
    """The attributes that a class's own `training_step` reads, if it is the user's."""
    code = getattr(vars(kind).get("training_step"), "__code__", None)
    if code is not None and not is_versioned(kind.__module__):
        for part in codes(code):
            yield from part.co_names


def loss_obstacles(trainer: Any) -> list[str]:
    """Why a training step reads more of the model than its loss; empty if it does not."""
    reasons = []
    if trainer.label_smoother is not None or trainer.compute_loss_func is not None:
        reasons.append("the loss is computed outside the graph")
    if trainer.compute_loss != types.MethodType(StockTrainer.compute_loss, trainer):
        reasons.append("compute_loss is overridden")
    return reasons


class WholeStep:
    """Takes the place of `training_step` and of gradient clipping."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.optimizer: NativeAdamW | None = None
        #: The last norm of the gradients before clipping; None while nothing ran natively.
        self.norm: Tensor | None = None

    @property
    def variant(self) -> Variant:
        """The graph that this takes."""
        return "native-accumulating" if self._trainer.args.gradient_accumulation_steps > 1 else "native"

    def optimizer_class(self) -> tuple[type[NativeAdamW], dict[str, Any]]:
        """What the stock trainer makes its optimizer with."""
        args = self._trainer.args
        return NativeAdamW, {
            "names": {id(p): n for n, p in self._trainer.bridge.model.named_parameters()},
            "lr": args.learning_rate,
            "betas": (args.adam_beta1, args.adam_beta2),
            "eps": args.adam_epsilon,
        }

    def run(self, batch: dict[str, Any], items: Any, apply: bool) -> Tensor | None:
        """One micro-batch; the loss as the stock trainer would report it, or None if torch has to do it."""
        trainer = self._trainer
        bridge: Bridge = trainer.bridge
        self.norm = None
        if bridge.native_refused is None:
            reasons = [*obstacles(trainer), *self._optimizer_obstacles()]
            if reasons:
                bridge.drop_native("; ".join(reasons))
        counted = trainer.model_accepts_loss_kwargs and items is not None
        done = bridge.native_step(
            {**batch, "num_items_in_batch": items} if counted else batch,
            variant=self.variant,
            divisor=1 if counted else trainer.current_gradient_accumulation_steps,
            apply=apply,
            adopt=self._configure,
        )
        if done is None:
            if self.optimizer is not None and self.optimizer.native is not None:
                self.optimizer.release()
            return None
        loss, self.norm = done
        if apply and self.optimizer is not None:
            self.optimizer.count()
        return loss

    def _optimizer_obstacles(self) -> list[str]:
        """The trainer's optimizer may have been exchanged since it was made."""
        current = getattr(self._trainer.optimizer, "optimizer", self._trainer.optimizer)
        if self.optimizer is None or current is not self.optimizer:
            return ["the optimizer is not the one that whole_step made"]
        model = self._trainer.bridge.model
        return self.optimizer.obstacles(p for p in model.parameters() if p.requires_grad)

    def _configure(self, native: NativeStep) -> None:
        assert self.optimizer is not None
        self.optimizer.prepare(native)
        native.step.settings.max_norm = self._trainer.args.max_grad_norm or 0.0
