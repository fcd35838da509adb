"""Greedy text from the exported graphs equals torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fuseline.exporters import ExportError
from fuseline.exporters.generation import Generator, export_generator
from fuseline.tools.campaigns import zoo

#: Weights large enough that the tokens vary. A random T5 or BART repeats itself, so they are taught to speak.
LIVELY: dict[str, dict[str, Any]] = {
    "gpt2": {"initializer_range": 0.3},
    "llama": {"initializer_range": 0.3},
    "bloom": {"initializer_range": 0.3},
    "t5": {},
    "bart": {},
    "whisper": {"init_std": 0.2},
}

#: Learning rates of those that are taught.
TAUGHT = {"t5": 1e-2, "bart": 3e-3}


def _greedy(name: str, tmp_path: Path | None = None) -> tuple[Any, Any]:
    module = zoo.build(name, attention=zoo.attentions(name)[-1], **LIVELY[name]).eval()
    inputs = {k: v for k, v in zoo.batch(module, 2, 7, seed=3).items() if k != "labels"}
    if name in TAUGHT:
        _teach(module, inputs, rate=TAUGHT[name])
    module.config.use_cache = module.generation_config.use_cache = True
    generator = export_generator(module)
    if tmp_path is not None:
        generator.save(tmp_path)
        generator = Generator.load(tmp_path)
    if generator.encoder is None:
        # Batches for generation are padded on the left.
        inputs = {k: v.flip(1) for k, v in inputs.items()}
    expected = module.generate(**inputs, max_new_tokens=20, do_sample=False).numpy()
    actual = generator.generate({k: v.numpy() for k, v in inputs.items()}, max_new_tokens=20)
    # Whisper's own generate leaves the start token out.
    return expected, actual[:, -expected.shape[1] :]


def _teach(module: Any, inputs: Any, rate: float) -> None:
    """Fit random sentences to the inputs, until it has something to say that varies."""
    torch.manual_seed(0)
    sentences = torch.randint(5, 99, (2, 24))
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(120):
        module(**inputs, labels=sentences).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _assert_varied(tokens: Any) -> None:
    assert tokens.shape[1] >= 20
    assert all(len(set(row[-20:].tolist())) > 3 for row in tokens)


def test_gpt2_through_files(tmp_path: Path) -> None:
    expected, actual = _greedy("gpt2", tmp_path)
    np.testing.assert_array_equal(actual, expected)
    assert expected.shape == (2, 27)
    _assert_varied(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in LIVELY if n != "gpt2"])
def test_other_architectures(name: str) -> None:
    expected, actual = _greedy(name)
    np.testing.assert_array_equal(actual, expected)
    _assert_varied(expected)


def test_a_classifier_does_not_generate() -> None:
    with pytest.raises(ExportError, match="does not generate"):
        export_generator(zoo.build("bert"))
