"""A module's parameters and buffers by name, looked up where they live each time."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["NamedTensors"]


class NamedTensors:
    """Remembers which submodule holds each tensor, never the tensor: training engines replace those."""

    def __init__(self, model: nn.Module) -> None:
        self._homes: list[tuple[str, dict[str, Tensor | None], str]] = []
        for prefix, module in model.named_modules(remove_duplicate=False):
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    if tensor is not None:
                        name = f"{prefix}.{key}" if prefix else key
                        self._homes.append((name, held, key))  # type: ignore[arg-type]

    def current(self) -> dict[str, Tensor]:
        """Every name with the tensor it has now; tied ones under all their names."""
        found = ((name, held[key]) for name, held, key in self._homes)
        return {name: tensor for name, tensor in found if tensor is not None}

    def trainable(self) -> tuple[str, ...]:
        return tuple(name for name, tensor in self.current().items() if tensor.requires_grad)
