"""Cleanup and folding never swallow, rename, merge or change a trainable parameter."""

from __future__ import annotations

import pytest

from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline, Repeat
from fuseline.engine.properties import Property
from fuseline.engine.registry import registry

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (int64[N,S] ids, float[N,S,2] mask) => (float[N,S,3] logits) <
  float[3,2] embedding = {1, 2, 3, 4, 5, 6},
  float[2,2] first = {1, 0, 0, 1}, float[2,2] second = {1, 0, 0, 1},
  float[2] zero_bias = {0, 0}, float[2] one_scale = {1, 1},
  float[2] frozen = {0, 0}
> {
  e = Gather(embedding, ids)
  first_t = Transpose(first)
  a = MatMul(e, first_t)
  b = Add(a, zero_bias)
  c = Mul(b, one_scale)
  d = MatMul(c, second)
  f = Add(d, frozen)
  m = Mul(f, mask)
  tied = Transpose(embedding)
  logits = MatMul(m, tied)
}"""
TRAINABLE = {
    "embedding": ("embedding", (3, 2)),
    "head": ("embedding", (3, 2)),
    "first": ("first", (2, 2)),
    "second": ("second", (2, 2)),
    "zero_bias": ("zero_bias", (2,)),
    "one_scale": ("one_scale", (2,)),
}


def model() -> Model:
    made = Model.from_text(MODEL)
    for name, (value, shape) in TRAINABLE.items():
        made.parameters.add(Parameter(name, value, shape))
    made.parameters.add(Parameter("frozen", "frozen", (2,), trainable=False))
    made.establish(Property.TRAINING)
    return made


def cleanup_passes() -> list[type[Pass]]:
    homes = ("fuseline.passes.cleanup.", "fuseline.passes.folding.")
    return [p for p in registry if p.__module__.startswith(homes) and p.phase == "any"]


def check(before: Model, after: Model) -> None:
    for name, (value, _) in TRAINABLE.items():
        assert after.parameters[name] == before.parameters[name]
        was, now = before.graph.initializers[value], after.graph.initializers[value]
        assert now.const_value is was.const_value
        assert now.uses()
    assert [n.op_type for n in after.graph].count("Transpose") == 2


@pytest.mark.parametrize("one", cleanup_passes(), ids=lambda p: p.name)
def test_each_pass(one: type[Pass]) -> None:
    before = model()
    check(before, Pipeline.of(one()).run(before).model)


def test_all_together() -> None:
    before = model()
    names = [p() for p in cleanup_passes() if p.name != "convert-opset"]
    after = Pipeline.of(Repeat(tuple(names))).run(before).model
    check(before, after)
    assert "frozen" not in after.graph.initializers
    assert after.parameters["frozen"].value is None
