"""Every Dropout of a graph draws numbers of its own, whichever pass took it over."""

from __future__ import annotations

from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 8] x, float[N, 8] residual) => (float[N, 8] y, float[N, 8] z)
  <float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}, float ratio = {0.5}, bool training = {1}>
{
  a = Add(x, bias)
  b = Dropout(a, ratio, training)
  y = Add(b, residual)
  c = Exp(x)
  z = Dropout(c, ratio, training)
}"""


def streams(model: Model) -> list[int]:
    return [n.attributes["stream"].as_int() for n in model.nodes() if "stream" in n.attributes]


def test_fused_and_single_dropouts_have_streams_of_their_own() -> None:
    made = Pipeline.parse("fuse-bias-dropout-add-training,native-dropout").run(Model.from_text(TEXT)).model
    assert len(streams(made)) == 2
    assert len(set(streams(made))) == 2


def test_a_saved_model_goes_on_counting() -> None:
    first = Pipeline.parse("fuse-bias-dropout-add-training").run(Model.from_text(TEXT)).model
    assert len(streams(first)) == 1
    second = Pipeline.parse("native-dropout").run(Model.from_proto(first.to_proto())).model
    assert len(set(streams(second))) == 2
