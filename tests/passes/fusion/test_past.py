"""Decoders with past keys and values: attention is fused, and the text that is generated stays the same."""

from __future__ import annotations

import numpy as np
import pytest

from fuseline.engine.pipeline import Pipeline

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom"])
def test_generation_with_a_cache_is_unchanged(name: str) -> None:
    from fuseline.exporters.generation import Generator, export_generator
    from fuseline.tools.campaigns import zoo

    model = zoo.build(name).eval()
    model.config.use_cache = True
    plain = export_generator(model, check=False)
    decoder = Pipeline.resolve("inference").run(plain.decoder).model
    kinds = [node.op_type for node in decoder.nodes()]
    assert kinds.count("MultiHeadAttention") == 2
    assert "Softmax" not in kinds
    # Keys that are shared by several heads are repeated between the cache and attention.
    joined = [len(n.inputs) > 6 for n in decoder.nodes() if n.op_type == "MultiHeadAttention"]
    assert joined == [name != "llama"] * 2
    inputs = {
        "input_ids": np.random.default_rng(0).integers(3, 90, (2, 7)),
        "attention_mask": np.array([[0, 0, 0, 1, 1, 1, 1], [1] * 7], np.int64),
    }
    fused = Generator(decoder, plain.encoder, plain.settings)
    np.testing.assert_array_equal(fused.generate(inputs, 12), plain.generate(inputs, 12))
