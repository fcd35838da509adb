"""Random numbers made of dropout's bits are distributed as torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fuseline.exporters.patches import without_dropout
from fuseline.exporters.randomness import drawn_by_dropout

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(40, 50),
    "rand of a size": lambda: torch.rand((40, 50)),
    "randn": lambda: torch.randn(40, 50, dtype=torch.float32),
    "rand_like": lambda: torch.rand_like(torch.zeros(40, 50)),
    "randn_like": lambda: torch.randn_like(torch.zeros(40, 50)),
    "bernoulli": lambda: torch.bernoulli(torch.full((40, 50), 0.3)),
    "uniform_": lambda: torch.empty(40, 50).uniform_(-3, 1),
    "uniform_ by name": lambda: torch.empty(40, 50).uniform_(to=3.0),
    "normal_": lambda: torch.empty(40, 50).normal_(2.0, std=0.5),
    "exponential_": lambda: torch.empty(40, 50).exponential_(2.0),
    "bernoulli_": lambda: torch.empty(40, 50).bernoulli_(0.8),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_distribution_is_torch_s(name: str) -> None:
    torch.manual_seed(0)
    expected = DRAWS[name]()
    with drawn_by_dropout():
        found, other = DRAWS[name](), DRAWS[name]()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert not torch.equal(found, other)
    # The largest distance of the two distribution functions, for 2,000 numbers each: by chance 0.05.
    points = torch.cat([found, expected]).flatten()
    shares = [(x.flatten()[:, None] <= points).float().mean(0) for x in (found, expected)]
    assert float((shares[0] - shares[1]).abs().max()) < 0.08


@pytest.mark.parametrize("name", DRAWS)
def test_nothing_is_random_where_dropout_passes_through(name: str) -> None:
    with without_dropout(torch.nn.Identity()):
        found = DRAWS[name]()
    assert float(found.max() - found.min()) == 0


def test_a_generator_of_one_s_own_is_left_alone() -> None:
    expected = torch.randn(3, generator=torch.Generator().manual_seed(1))
    with drawn_by_dropout():
        assert torch.equal(torch.randn(3, generator=torch.Generator().manual_seed(1)), expected)
