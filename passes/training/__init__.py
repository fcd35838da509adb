"""Passes that make a graph trainable, differentiate it and put the optimizer in."""

import fuseline.kernels  # noqa: F401  (its operators and gradients become known to the engine)
