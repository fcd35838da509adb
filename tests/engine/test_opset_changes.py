"""Operators that mean something else in another opset are not converted as if they did not."""

from __future__ import annotations

import pytest

from fuseline import Model, Pipeline
from fuseline.engine.errors import ModelError

_REFUSED = {
    "the best of all axes": (12, 18, "y = Hardmax(x)", "over axis 1"),
    "the softmax of one axis": (13, 12, "y = Softmax<axis = 1>(x)", "over axis 1"),
    "its logarithm": (13, 11, "y = LogSoftmax<axis = -2>(x)", "over axis -2"),
    "a scale for each group": (18, 21, "y = GroupNormalization<num_groups = 2>(x, s, s)", "each group"),
    "up and down": (10, 18, "y = Resize(x, t)", "the nearest pixel"),
    "windows over the edge": (
        18,
        19,
        "y = AveragePool<kernel_shape = [2, 2], ceil_mode = 1, pads = [1, 1, 1, 1], strides = [2, 2]>(x)",
        "rounds up a padded size",
    ),
}


@pytest.mark.parametrize("what", _REFUSED)
def test_what_the_other_opset_cannot_say_is_refused(what: str) -> None:
    source, target, node, reason = _REFUSED[what]
    model = Model.from_text(f"""
    <ir_version: 8, opset_import: ["" : {source}]>
    g (float[1,4,5,5] x) => (float[A,B,C,D] y) <float[2] s = {{1, 2}}, float[4] t = {{1, 1, 0.5, 2}}> {{
        {node}
    }}
    """)
    with pytest.raises(ModelError, match=f"opset {source} cannot be converted to {target}: .*{reason}"):
        Pipeline.resolve(f"convert-opset{{to={target}}}").run(model)


def test_the_last_axis_is_the_same_in_all_opsets() -> None:
    text = '<ir_version: 8, opset_import: ["" : 12]> g (float[N,4] x) => (float[N,4] y) { y = Hardmax(x) }'
    converted = Pipeline.resolve("convert-opset{to=18}").run(Model.from_text(text)).model
    assert [node.attributes.get_int("axis") for node in converted.nodes()] == [-1]
