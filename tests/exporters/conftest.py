"""Exports that several tests look at, made once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuseline.engine.model import Model
from fuseline.exporters import export
from fuseline.tools.campaigns import zoo

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bert() -> tuple[Any, Model]:
    """A BERT classifier with dropout, and its training export."""
    module = zoo.build("bert", dropout=0.1)
    return module, export(module, train=True)


@pytest.fixture(scope="session")
def gpt2() -> tuple[Any, Model]:
    """GPT-2, whose embedding and head are one weight, and its training export."""
    module = zoo.build("gpt2", attention="sdpa", dropout=0.2)
    return module, export(module, train=True)


@pytest.fixture(scope="session")
def resnet() -> tuple[Any, Model]:
    """A ResNet, whose forward moves running statistics, and its training export."""
    module = zoo.build("resnet")
    return module, export(module, train=True)
