"""Passes that change what a graph takes and gives: its weights, its outputs, its mode, its halves."""

import fuseline.kernels  # noqa: F401  (its operators become known to the engine)
