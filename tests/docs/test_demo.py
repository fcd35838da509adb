"""What `make demo` says at its end is there, here with a tiny model and made-up comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import stage
import transformers

from fuseline.tools import demo
from fuseline.tools.campaigns import zoo
from fuseline.tools.console import console

STEPS = 3


@pytest.fixture
def talkative() -> Iterator[None]:
    """The demo silences transformers for its process."""
    before = transformers.logging.get_verbosity()
    yield
    transformers.logging.set_verbosity(before)
    transformers.logging.enable_progress_bar()


@pytest.mark.native
@pytest.mark.usefixtures("talkative")
def test_everything_that_the_demo_names_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Like MiniLM a model without a head.
    zoo.build("bert").bert.save_pretrained(tmp_path / "my-model")
    stage.tokenizer().save_pretrained(tmp_path / "my-model")
    stage.comments(tmp_path / "comments.csv", 320 + 16 * STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "minilm", lambda: tmp_path / "my-model")
    monkeypatch.setattr(demo, "offensive_texts", lambda: tmp_path / "comments.csv")
    monkeypatch.setattr("sys.argv", ["demo", "--steps", str(STEPS)])
    with console.capture() as captured:
        demo.main()
    said = captured.get()
    assert f"{16 * STEPS} of {320 + 16 * STEPS} comments to learn from, 320 to be judged by" in said
    assert re.search(rf"losses agree to \d\.\de-\d+; {STEPS} steps took", said)
    named = set(re.findall(r"demo-output/[\w./*-]*\w", said))
    assert {"demo-output/model", "demo-output/model.onnx", "demo-output/diffs/*/report.html"} <= named
    assert not [path for path in named if not list(tmp_path.glob(path))]
    folders = [p.parent for p in tmp_path.glob("demo-output/diffs/*/report.html")]
    assert all(list(f.glob("*.diff")) and list(f.glob("*.json")) for f in folders)
