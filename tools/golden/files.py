"""The golden files of a plugin, and running them outside of pytest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuseline.engine.errors import FuselineError
from fuseline.engine.registry import registry
from fuseline.tools.golden.cases import Case, read, update
from fuseline.tools.golden.checks import Failed, check, compare

__all__ = ["SUFFIX", "Outcome", "golden_files", "run_file"]

SUFFIX = ".onnxtxt"


@dataclass(frozen=True)
class Outcome:
    """One case: what is wrong with it ("" if nothing is), and whether its expectation was written."""

    file: Path
    case: str
    seconds: float
    failure: str = ""
    updated: bool = False


def golden_files(path: Path) -> list[Path]:
    """The golden files of a plugin or a folder; plugins are loaded.

    Beside `my_passes.py` these are `my_passes.onnxtxt` and, for every pass in it, one of the pass's name.
    """
    if path.is_dir():
        for plugin in sorted(path.glob("*.py")):
            registry.load_plugin(plugin)
        found = sorted(path.glob(f"*{SUFFIX}"))
        if not found:
            raise FuselineError(f"{path} holds no golden file (*{SUFFIX})")
        return found
    if path.suffix == SUFFIX:
        return [path]
    stems = [path.stem, *(p.name.replace("-", "_") for p in registry.load_plugin(path))]
    beside = [f for f in (path.with_name(f"{stem}{SUFFIX}") for stem in stems) if f.is_file()]
    if not beside:
        raise FuselineError(
            f"there is no golden file beside {path}",
            hint=f"write {path.with_name(stems[-1] + SUFFIX).name}; `fuseline passes new` makes one",
        )
    return list(dict.fromkeys(beside))


def run_file(path: Path, *, rewrite: bool = False) -> Iterator[Outcome]:
    """Every case of a file; with `rewrite`, what was made is written into the file at the end."""
    pipeline, cases = read(path)
    made: dict[str, str] = {}
    for case in cases:
        begin = time.perf_counter()
        text, failure = _run(pipeline, case, rewrite)
        changed = bool(rewrite and text and not failure and text.strip() != case.expected.strip())
        if changed:
            made[case.name] = text
        yield Outcome(path, case.name, time.perf_counter() - begin, failure, changed)
    if made:
        update(path, made)


def _run(pipeline: str, case: Case, rewrite: bool) -> tuple[str, str]:
    """The text that was made, and what is wrong."""
    try:
        text = check(pipeline, case)
        if text and not rewrite:
            compare(case, text)
    except Failed as failure:
        return "", str(failure)
    except FuselineError as error:
        return "", str(error)
    except Exception as error:  # the parser of ONNX text raises what it likes
        return "", f"{type(error).__name__}: {error}"
    return text, ""
