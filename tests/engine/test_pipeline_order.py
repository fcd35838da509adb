"""A pipeline whose passes can never follow each other is refused when it is built."""

from __future__ import annotations

import pytest

from fuseline.engine.errors import PassError, PipelineError
from fuseline.engine.model import Model
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import Rewriter

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (float[N] y) { y = Neg(x) }"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("differentiate,resolve-pow", "'resolve-pow' must run before the gradient"),
        ("accumulate-gradients,differentiate", "'differentiate' must run before the gradient"),
        ("differentiate,fold-conv-batchnorm", "'fold-conv-batchnorm' is for inference"),
        ("insert-optimizer,insert-optimizer", "'insert-optimizer' cannot follow"),
        ("insert-optimizer,accumulate-gradients", "'accumulate-gradients' cannot follow"),
        ("repeat{at-most=2}(differentiate),expand-where", "'expand-where' must run before the gradient"),
    ],
)
def test_what_can_never_run_is_refused_when_built(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Pipeline.parse(text)


def test_what_depends_on_the_model_is_left_to_the_run() -> None:
    pipeline = Pipeline.parse("accumulate-gradients,insert-optimizer")
    with pytest.raises(PassError, match="works on a differentiated graph"):
        pipeline.run(Model.from_text(MODEL))


def test_a_pass_can_undo_a_property() -> None:
    class Round(Pass):
        """x → x, its products rounded"""

        name = "test-round"
        ensures = (Property.MIXED_PRECISION,)

        def run(self, model: Model, rewriter: Rewriter) -> int:
            return 0

    class Forget(Round):
        """x → x"""

        name = "test-forget"
        ensures = ()
        requires = (Property.MIXED_PRECISION,)
        invalidates = (Property.MIXED_PRECISION,)

    model = Pipeline.of(Round(), Forget()).run(Model.from_text(MODEL)).model
    assert not model.has(Property.MIXED_PRECISION)
    with pytest.raises(PipelineError, match="'mixed precision', which no earlier pass ensured") as caught:
        Pipeline.of(Round(), Forget(), Forget())
    assert "decided by 'test-forget'" in caught.value.__notes__[0]
