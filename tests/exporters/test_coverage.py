"""The coverage page: what counts as green, and what a row says when it is not."""

from __future__ import annotations

from fuseline.tools.campaigns import zoo
from fuseline.tools.campaigns.coverage_models import Row, _one_line, render

GREEN = Row("bert", "eager", "Bert", "text-classification", "batch", 8.2, 284, 199, 1e-7, 6e-7)


def test_green_needs_loss_and_gradients() -> None:
    assert GREEN.green
    assert not Row("bert", "eager", forward=1e-7).green
    assert not Row("bert", "eager", forward=1e-4, gradient=1e-7).green
    assert not Row("bert", "eager", forward=1e-7, gradient=1e-3).green


def test_the_page_counts_and_explains() -> None:
    failed = Row("mamba", "eager", why="its Python code branches on the content of a tensor")
    page = render([GREEN, failed])
    assert "**1 of 2 architectures are green**" in page
    assert (
        "| bert | eager | text-classification | ok | 1e-07 | 6e-07 | batch | 284 → 199 | 8 | green |" in page
    )
    assert "**its Python code branches on the content of a tensor** |" in page


def test_an_error_becomes_one_line() -> None:
    error = ValueError("2 nodes have no gradient:\n  Resize at layer.0\n  Resize at layer.1")
    assert _one_line(error) == "2 nodes have no gradient: Resize at layer.0"
    assert _one_line(ValueError("a | b\nand more")) == "a / b"


def test_the_zoo_has_enough_architectures() -> None:
    assert len(zoo.names()) >= 45
