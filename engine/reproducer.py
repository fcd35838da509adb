"""A reproducer: a folder with a small model that still shows a fault, and the one command that shows it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fuseline.engine.bisect import Culprit
from fuseline.engine.diff.text import to_text
from fuseline.engine.errors import FuselineError
from fuseline.engine.files import write_text
from fuseline.engine.inputs import save_npz
from fuseline.engine.minimize import minimize
from fuseline.engine.outputs import check_output_folder
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.verification import Verifier

__all__ = ["Reproducer", "prepare_folder", "write_reproducer"]

Array = npt.NDArray[Any]

_FILES = ("model.onnx", "pipeline.txt", "inputs.npz", "rewrite.diff", "README.md")


@dataclass(frozen=True)
class Reproducer:
    """What was written, and the command to run in `folder`."""

    folder: Path
    command: str
    nodes: int


def write_reproducer(
    folder: str | Path, culprit: Culprit, verifier: Verifier, *, plugins: Sequence[Path] = ()
) -> Reproducer:
    """Write model, pipeline, inputs, plugins and a README; files of an earlier reproducer are replaced."""
    folder = Path(folder)
    prepare_folder(folder, plugins)
    model, inputs = minimize(culprit, verifier)
    model.save(folder / "model.onnx")
    save_npz(folder / "inputs.npz", inputs)
    write_text(folder / "pipeline.txt", f"{Pipeline.of(culprit.step.pass_)}\n")
    write_text(folder / "rewrite.diff", to_text(culprit.diff))
    for plugin in plugins:
        shutil.copyfile(plugin, folder / plugin.name)
    command = _command(culprit, verifier, plugins)
    nodes = sum(len(g) for g in model.graphs())
    write_text(folder / "README.md", _readme(culprit, command, inputs, nodes))
    return Reproducer(folder, command, nodes)


def prepare_folder(folder: Path, plugins: Sequence[Path], *, read: Iterable[Path | None] = ()) -> None:
    """Make the folder, and raise a FuselineError where it holds what a reproducer must not replace."""
    names = [p.name for p in plugins]
    if len(set(names)) != len(names):
        raise FuselineError(f"two plugins have the same file name: {', '.join(sorted(names))}")
    check_output_folder(folder)
    if folder.resolve() in {file.resolve().parent for file in (*plugins, *read) if file is not None}:
        raise FuselineError(
            f"the folder {folder} holds what the fault was found with", hint="choose an empty folder"
        )
    foreign = sorted({f.name for f in folder.iterdir()} - {*_FILES, *names, "model.onnx.data"})
    if foreign:
        raise FuselineError(
            f"the folder {folder} holds other files: {', '.join(foreign[:3])}", hint="choose an empty folder"
        )


def _command(culprit: Culprit, verifier: Verifier, plugins: Sequence[Path]) -> str:
    words = ["fuseline", "bisect", "model.onnx", "--pipeline", str(Pipeline.of(culprit.step.pass_))]
    words += ["--inputs", "inputs.npz", "--verify", verifier.quantity]
    for plugin in plugins:
        words += ["--plugin", plugin.name]
    return shlex.join(words)


def _readme(culprit: Culprit, command: str, inputs: Mapping[str, Array], nodes: int) -> str:
    where = "the pass as a whole"
    if culprit.rewrite is not None:
        note = f" ({culprit.rewrite.note})" if culprit.rewrite.note else ""
        where = f"rewrite {culprit.position} of {culprit.total}, at `{culprit.rewrite.site}`{note}"
    fed = "\n".join(f"- `{name}`: {a.dtype} {list(a.shape)}" for name, a in inputs.items())
    return f"""# `{culprit.step.pass_}` changes results

Found at step {culprit.step.index} of the original pipeline: {where}.

Run it again, in this folder (exit code 1: the fault is still there, 0: it is gone):

```
{command}
```

What differs, on the original model:

```
{culprit.report}
```

`model.onnx` ({nodes} nodes) is cut out around the fault, `inputs.npz` holds the values that reach it, and
`rewrite.diff` shows what the rewrite did in the original model. Inputs:

{fed}
"""
