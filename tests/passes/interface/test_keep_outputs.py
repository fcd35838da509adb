"""The pass `keep-outputs`."""

from __future__ import annotations

import pytest

from fuseline.engine.errors import ModelError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline


def test_a_graph_is_not_left_without_outputs() -> None:
    model = Model.from_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
    )
    with pytest.raises(ModelError, match="no output would be left"):
        Pipeline.parse("keep-outputs").run(model)
