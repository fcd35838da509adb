"""Every pass on the inputs of its golden file in other opsets: what loads before it loads after."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.runtime import session
from fuseline.tools.golden.cases import HEADER, Case, read

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.onnxtxt"))
OPSETS = (12, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 9, 11, 13, 15, 21)))


def _model(case: Case, opset: int) -> Model | None:
    """The case in another opset, where that can express its input as it is written."""
    text = case.model if case.model.lstrip().startswith("<") else HEADER + case.model
    try:
        model = Model.from_text(re.sub(r'(""\s*:\s*)\d+', rf"\g<1>{opset}", text))
        session(model)
    except FuselineError:
        return None
    return model


@pytest.mark.native
@pytest.mark.parametrize("opset", OPSETS)
def test_what_loads_before_loads_after(opset: int) -> None:
    tried = 0
    for path in GOLDEN:
        pipeline, cases = read(path)
        for case in cases:
            # What trains is brought to a newer opset first.
            model = None if "TRAINABLE" in case.directives else _model(case, opset)
            if model is None:
                continue
            tried += 1
            made = Pipeline.parse(pipeline).run(model).model
            try:
                session(made)
            except FuselineError as error:
                pytest.fail(f"{path.stem}, {case.name}: {error.message}")
    assert tried > 200
