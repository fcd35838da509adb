"""Whether the live model is still the one that was compiled: asked before every run, so it must be cheap.

Every attribute of every module is compared by identity with what was there the last time. Anything else
than the same objects is no proof of a change, only a reason to look closely.
"""

from __future__ import annotations

from itertools import islice
from operator import is_
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

__all__ = ["Watch"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Changed by every switch between training and evaluation, and by every run.
_PASSING = ("training", "forward")


class Watch:
    """Remembers a model's modules and their attributes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules: list[nn.Module] = []
        self._sensitive: list[tuple[str, nn.Module]] = []
        self._buffers: list[tuple[dict[str, Tensor | None], str]] = []
        self._seen: list[Any] = []
        self._counts: list[int] = []
        #: Buffers that every step writes; they are fed and written back, and no sign of a change.
        self.moving: frozenset[str] = frozenset()
        self.remember()

    def remember(self) -> None:
        """The model as it is now is the one."""
        named = list(self._model.named_modules())
        self._modules = [module for _, module in named]
        self._sensitive = [(name, module) for name, module in named if _depends_on_mode(module)]
        self._buffers = [
            (module._buffers, key)
            for prefix, module in named
            for key in module._buffers
            if f"{prefix}.{key}".lstrip(".") not in self.moving and not isinstance(module, _NormBase)
        ]
        self._seen, self._counts = self._look()

    def changed(self) -> bool:
        """Whether anything is not the very object that it was."""
        seen, counts = self._look()
        return len(seen) != len(self._seen) or not all(map(is_, seen, self._seen)) or counts != self._counts

    def odd_mode(self) -> str | None:
        """Why the model as a whole neither trains nor evaluates: a part of it was put into the other mode."""
        training = self._model.training
        for name, module in self._sensitive:
            if module.training != training:
                mine, its = ("trains", "evaluates") if training else ("evaluates", "trains")
                return f"the model {mine}, but its part {name!r} {its}"
        return None

    def _look(self) -> tuple[list[Any], list[int]]:
        # References are kept, not addresses: a new object could stand where an old one was.
        seen: list[Any] = []
        counts: list[int] = []
        for module in self._modules:
            held = vars(module)
            if next(iter(held)) == "training" and "forward" not in held:
                seen += islice(
                    held.values(), 1, None
                )  # what torch sets first, and much quicker than a choice
            else:
                seen += [value for name, value in held.items() if name not in _PASSING]
            seen += module._modules.values()
            seen += module._parameters.values()
            counts.append(sum(len(held[name]) for name in _HOOKS))
        for held_buffers, key in self._buffers:
            # Their contents are baked into the graph.
            buffer = held_buffers.get(key)
            seen.append(buffer)
            counts.append(-1 if buffer is None else buffer._version)
        config = getattr(self._model, "config", None)
        if config is not None:
            seen += vars(config).values()
        return seen, counts


def _depends_on_mode(module: nn.Module) -> bool:
    """Anything may, but for torch's own layers of which it is known; a module of the user's own may."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, _NormBase):
        return module.track_running_stats
    return not type(module).__module__.startswith("torch.nn.modules.") or isinstance(
        module, (nn.RNNBase, nn.MultiheadAttention, nn.RReLU)
    )
