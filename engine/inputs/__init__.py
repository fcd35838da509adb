"""Inputs to run a model on: generated so that real models accept them, or read from a user's .npz file."""

from fuseline.engine.inputs.generate import generate, generate_sets
from fuseline.engine.inputs.interface import Input, interface
from fuseline.engine.inputs.npz import check_inputs, load_npz, save_npz

__all__ = ["Input", "check_inputs", "generate", "generate_sets", "interface", "load_npz", "save_npz"]
