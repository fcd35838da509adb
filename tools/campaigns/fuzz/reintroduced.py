"""Faults that fuseline once had, brought back on purpose: how many graphs does the campaign need for each?

python -m fuseline.tools.campaigns.fuzz.reintroduced [NAME…] [--seed 0] [--at-most 5000]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import onnxruntime  # noqa: F401  (workers are forked: what is imported here they need not import)

import fuseline.passes  # noqa: F401
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.shapes.dims import Dim
from fuseline.tools.campaigns.fuzz.campaign import judge_task
from fuseline.tools.campaigns.fuzz.judge import Verdict
from fuseline.tools.campaigns.fuzz.pipelines import READY
from fuseline.tools.campaigns.fuzz.workers import Pool
from fuseline.tools.console import console

__all__ = ["FAULTS", "found_after", "main", "reintroduced"]

_ENGINE, _FUSION = "fuseline.engine", "fuseline.passes.fusion"


def _first_known(column: tuple[Dim, ...]) -> Dim:
    """An open size beside others taken for 1."""
    numbers = [d for d in column if isinstance(d, int)]
    return max(numbers, default=1) if None in column else next((d for d in column if d != 1), 1)


def _never(*_: Any, **__: Any) -> None:
    return None


def _always(*_: Any, **__: Any) -> bool:
    return True


def _as_newest(_op: str, inputs: Any, attributes: Any, *_: Any) -> tuple[list[Any], Any]:
    return list(inputs), attributes


def _sort_by_own_inputs(model: Any, _source: str) -> None:
    """Every node as early as its own inputs allow, whatever its branches read."""
    for graph in model.graphs():
        nodes = list(graph)
        depth: dict[Any, int] = {}
        for node in nodes:
            makers = [v.producer() for v in node.inputs if v is not None]
            depth[node] = max((depth.get(maker, 0) + 1 for maker in makers if maker is not None), default=0)
        graph.remove(nodes)
        graph.extend(sorted(nodes, key=depth.__getitem__))


FAULTS: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {
    "open sizes are 1": [(f"{_ENGINE}.shapes.rules", "_broadcast_dim", _first_known)],
    "placeholders are names": [(f"{_ENGINE}.shapes.dims", "is_placeholder", lambda _: False)],
    "newest operator forms": [
        (f"{_ENGINE}.rewriting.builder", "in_form", _as_newest),
        (f"{_ENGINE}.rewriting.builder", "check_node", _never),
        (f"{_ENGINE}.rewriting.rewriter", "check_node", _never),
    ],
    "kernels for every type": [(f"{_ENGINE}.rewriting.checks", "_check_type", _never)],
    "one element is a scalar": [(f"{_ENGINE}.patterns.fusion", "_raised_rank", _never)],
    "integers do not wrap": [(f"{_ENGINE}.shapes.known", "Known.wrapped", lambda self: self)],
    "integers divide downwards": [(f"{_ENGINE}.operators.evaluation", "_divide", lambda a, b: a // b)],
    "masks hold 0 and 1": [(f"{_FUSION}.fragments.masks", "_is_choice", _always)],
    "captures are not read": [(f"{_ENGINE}.validation", "_sort", _sort_by_own_inputs)],
    "a batch is never empty": [(f"{_FUSION}.fuse_matmul_transpose", "_same_batch", _always)],
    "vectors have any length": [(f"{_FUSION}.fragments.values", "broadcasts_last", _always)],
    "intermediates belong to the match": [(f"{_ENGINE}.patterns.fusion", "_used_elsewhere", _never)],
    "a size is another than 1": [("fuseline.passes.training.expand_broadcast", "_open", lambda *_: False)],
}
"""What was wrong → (module, what in it, what it was like)."""


@contextmanager
def reintroduced(name: str) -> Iterator[None]:
    """The fault, until the end of the block."""
    patches = []
    for module, attribute, replacement in FAULTS[name]:
        owner: Any = importlib.import_module(module)
        *path, last = attribute.split(".")
        for part in path:
            owner = getattr(owner, part)
        original = getattr(owner, last)
        patches.append(mock.patch.object(owner, last, replacement))
        patches += _imported_elsewhere(owner, last, original, replacement)
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def _imported_elsewhere(owner: Any, name: str, original: Any, replacement: Any) -> list[Any]:
    """The same function under its name in the modules that import it from there."""
    import sys

    users = [m for n, m in list(sys.modules.items()) if n.startswith("fuseline.") and m is not owner]
    return [
        mock.patch.object(m, name, replacement)
        for m in users
        if getattr(m, name, None) is original and not name.startswith("_")
    ]


def found_after(name: str, seed: int, at_most: int) -> tuple[int, Verdict | None]:
    """After how many judged graphs the fault shows, and how."""
    for ready in READY:
        Pipeline.resolve(ready)
    with reintroduced(name):
        pool = Pool(judge_task, 2)
        judged = 0
        try:
            for _, verdict in pool.run((seed, index) for index in range(10**9)):
                judged += verdict.status != "unusable"
                if verdict.found:
                    return judged, verdict
                if judged >= at_most:
                    return judged, None
        finally:
            pool.close()
    raise AssertionError("there are always more graphs")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *FAULTS], default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-most", type=int, default=5000)
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.names or FAULTS:
        judged, verdict = found_after(name, arguments.seed, arguments.at_most)
        missed += verdict is None
        how = "not found" if verdict is None else f"{verdict.status} by {verdict.blame or '?'}"
        console.print(f"{name}: {how} after {judged} graphs", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
