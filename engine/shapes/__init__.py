"""Sizes that may be symbolic, integer tensors that hold them, and the inference of types and shapes."""
