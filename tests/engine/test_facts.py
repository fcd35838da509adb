"""Facts: typed records that survive files, the files of earlier versions included."""

from __future__ import annotations

import json

import pytest

from fuseline.engine.errors import ModelError
from fuseline.engine.facts import (
    DeclaredInput,
    Dropout,
    Facts,
    GraphOptimizer,
    Interface,
    Origin,
    Training,
)
from fuseline.engine.model import Model
from fuseline.engine.properties import Property

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (float[N] y) { y = Neg(x) }"""

FULL = Facts(
    Origin(
        task="masked-lm", notes=("a", "b"), timings={"trace": 1.0}, check=({"output": "y", "shape": (2, 3)},)
    ),
    Interface(
        {"x": DeclaredInput(("batch", 4), 1)}, {"x": {"0": "batch"}}, labels=("x",), outputs=("y",), fed=True
    ),
    Training(
        "training", "y", {"a": "b"}, ("w",), {"table": 3}, "switch", GraphOptimizer("sgd", ("w",), (("m",),))
    ),
    Dropout(3),
    frozenset([Property.TRAINING, Property.DIFFERENTIATED]),
    {"mine": [1, 2]},
)


def test_facts_survive_a_model() -> None:
    model = Model.from_text(TEXT)
    model.facts = FULL
    assert Model.from_proto(model.to_proto()).facts == FULL


def test_a_copy_is_independent() -> None:
    copy = FULL.copy()
    copy.established -= {Property.TRAINING}
    copy.extra["mine"].append(3)
    assert Property.TRAINING in FULL.established
    assert FULL.extra == {"mine": [1, 2]}


def test_files_of_the_first_version_still_load() -> None:
    proto = Model.from_text(TEXT).to_proto()
    flat = {
        "task": "masked-lm",
        "train": True,
        "loss": "y",
        "established": ["differentiated"],
        "inputs": {"x": {"axes": ["batch"], "default": None}},
        "optimizer": {"kind": "sgd", "values": ["w"], "moments": [["m"]], "accumulate": False},
        "dropout_streams": 2,
        "training_switch": "training_mode",
        "of a plugin": 1,
    }
    entry = proto.metadata_props.add()
    entry.key, entry.value = "fuseline.facts", json.dumps(flat)
    facts = Model.from_proto(proto).facts
    assert facts.origin.task == "masked-lm"
    assert facts.established == {Property.TRAINING, Property.DIFFERENTIATED}
    assert facts.interface.inputs == {"x": DeclaredInput(("batch",))}
    assert facts.training.optimizer == GraphOptimizer("sgd", ("w",), (("m",),))
    assert facts.training.switch == "training_mode"
    assert facts.dropout.streams is None
    assert facts.extra == {"of a plugin": 1}
    entry.value = json.dumps({"train": True, "mode": "evaluation"})
    assert not Model.from_proto(proto).training


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"version": 3}', '{"version": 2, "training": {"lost": 1}}', '{"established": ["odd"]}'],
)
def test_facts_that_cannot_be_read_are_refused(text: str) -> None:
    proto = Model.from_text(TEXT).to_proto()
    entry = proto.metadata_props.add()
    entry.key, entry.value = "fuseline.facts", text
    with pytest.raises(ModelError, match="facts"):
        Model.from_proto(proto)
