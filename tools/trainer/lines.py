"""A callback that reports progress in plain lines, for pipes and logs."""

from __future__ import annotations

from typing import Any

import transformers

from fuseline.tools.console import console

__all__ = ["PlainLines"]


class PlainLines(transformers.TrainerCallback):
    """One line per logging step, one per evaluation."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        values = {k: v for k, v in (logs or {}).items() if isinstance(v, (int, float))}
        if "loss" in values:
            rate = f", rate {values['learning_rate']:.2e}" if "learning_rate" in values else ""
            console.print(f"step {state.global_step} of {state.max_steps}: loss {values['loss']:.4f}{rate}")
        elif "eval_loss" in values:
            rest = [f"{k.removeprefix('eval_')} {v:.4f}" for k, v in values.items() if _is_metric(k)]
            console.print(f"evaluation at step {state.global_step}: {', '.join(rest)}")


def _is_metric(name: str) -> bool:
    return name.startswith("eval_") and not name.endswith(("_second", "_runtime", "_time"))
