"""The trainer's side of the native step: its optimizer, its training step, its gradient norm."""

from __future__ import annotations

import types
from typing import Any

import transformers
from torch import Tensor

from fuseline.engine.errors import FuselineError
from fuseline.tools.trainer.arguments import ADAMW
from fuseline.tools.trainer.bridge import Bridge
from fuseline.tools.trainer.compiler import Variant
from fuseline.tools.trainer.native import NativeAdamW, NativeStep

__all__ = ["WholeStep", "check_possible", "loss_obstacles"]

_OPTIMIZERS = (ADAMW, "adamw_torch", "adamw_torch_fused")


def check_possible(trainer: Any) -> None:
    """Refuse, with the reason, what an optimizer inside the graph cannot serve."""
    args, reasons = trainer.args, []
    if str(getattr(args.optim, "value", args.optim)) not in _OPTIMIZERS:
        reasons.append(f"optim={args.optim!r} is not AdamW")
    if trainer.optimizer is not None or trainer.optimizer_cls_and_kwargs is not None:
        reasons.append("an optimizer of your own was given")
    if args.world_size > 1 or trainer.is_deepspeed_enabled:
        reasons.append("gradients have to be exchanged between processes")
    reasons += loss_obstacles(trainer)
    if args.fp16:
        reasons.append("fp16 needs a loss scale that changes from step to step")
    if reasons:
        raise FuselineError(f"whole_step=True is not possible: {'; '.join(reasons)}", hint="leave it out")


def loss_obstacles(trainer: Any) -> list[str]:
    """Why a training step reads more of the model than its loss; empty if it does not."""
    reasons = []
    if trainer.label_smoother is not None or trainer.compute_loss_func is not None:
        reasons.append("the loss is computed outside the graph")
    if trainer.compute_loss != types.MethodType(transformers.Trainer.compute_loss, trainer):
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
        counted = trainer.model_accepts_loss_kwargs and items is not None
        done = bridge.native_step(
            {**batch, "num_items_in_batch": items} if counted else batch,
            variant=self.variant,
            divisor=1 if counted else trainer.current_gradient_accumulation_steps,
            apply=apply,
            adopt=self._configure,
        )
        if done is None:
            return None
        loss, self.norm = done
        return loss

    def _configure(self, native: NativeStep) -> None:
        optimizer, args = self.optimizer, self._trainer.args
        assert optimizer is not None
        if optimizer.native is None:
            optimizer.adopt(native)
        settings = native.step.settings
        settings.learning_rate = optimizer.rates("lr")
        settings.weight_decay = optimizer.rates("weight_decay")
        settings.betas = (args.adam_beta1, args.adam_beta2)
        settings.epsilon, settings.max_norm = args.adam_epsilon, args.max_grad_norm
