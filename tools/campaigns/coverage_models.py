"""Export and gradients of architectures and plain modules against torch; writes docs/coverage.md.

    python -m fuseline.tools.campaigns.coverage_models [NAME …] [--fresh] [--processes 2] [--render]

Every row is kept in .cache/coverage as it is done, so that an interrupted run goes on where it stopped. Rows
run in worker processes: one that dies (a crash inside a runtime) costs its row, not the run.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuseline.tools.console import console

if TYPE_CHECKING:
    from fuseline.exporters.plan import Plan
    from fuseline.exporters.sources import Source

__all__ = ["Row", "main", "measure", "render"]

CACHE = Path(".cache/coverage")
PAGE = Path("docs/coverage.md")
LOSS_LIMIT = 1e-5
#: Stands for the attention of what has none: a plain torch module.
PLAIN = "plain"
GRADIENT_LIMIT = 1e-4
#: The longest reason that a cell holds: what, where, and what to do.
_CELL = 320

_INTRODUCTION = f"""# Architectures that export and train

Made by `make coverage-models` from tiny configs: two layers, hidden size 64, random weights, dropout 0. Each
model is exported with labels and loss, in every attention implementation that transformers has for it, and
compared with unpatched torch on three shapes that differ from the traced one in every dynamic axis, batch 1
included, padded left, right and not at all: the loss relative to its size, and every parameter's gradient
after the complete pipeline `training`, native operators included, as ONNX Runtime runs it with its own
optimisations.

A gradient's difference is relative to its largest element, or to a thousandth of the model's largest gradient
where that is more. A gradient whose true value is 0, such as that of a bias that a softmax cancels, has no
size of its own: what torch gives there, less than a hundred-thousandth of the largest gradient, is rounding.
It is judged by a hundredth of the largest.

A row is green if the loss differs by at most {LOSS_LIMIT:.0e} and no gradient by more than
{GRADIENT_LIMIT:.0e}. *Time* is that of the export with its check, in seconds, on busy cores.
*Nodes* are those of the raw export and of the finished training graph.
"""


@dataclass(frozen=True)
class Row:
    """What was found out about one architecture with one attention implementation."""

    name: str
    attention: str
    architecture: str = ""
    task: str = ""
    axes: str = ""
    seconds: float = 0.0
    nodes: int = 0
    nodes_training: int = 0
    forward: float | None = None
    gradient: float | None = None
    why: str = ""

    @property
    def green(self) -> bool:
        return (
            self.forward is not None
            and self.forward <= LOSS_LIMIT
            and self.gradient is not None
            and self.gradient <= GRADIENT_LIMIT
        )

    @property
    def path(self) -> Path:
        return CACHE / f"{self.name}-{self.attention}.json"

    def save(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def measure(name: str, attention: str) -> Row:
    """Export one architecture with its loss, compare loss and gradients with torch on three shapes."""
    from fuseline.exporters import export
    from fuseline.exporters.mode import without_dropout
    from fuseline.exporters.planning import make_plan
    from fuseline.exporters.verify import CheckReport
    from fuseline.tools.gradient_check import differentiated, gradient_report_of

    row = Row(name, attention, why="the process died while exporting")
    row.save()
    try:
        source = _source(name, attention)
        begin = time.perf_counter()
        model = export(source, train=True)
        report = CheckReport.from_json(model.facts.origin.check)
        plan = make_plan(source, train=True)
        row = replace(
            row,
            architecture=source.label,
            task=model.facts.origin.task or "its own loss",
            axes=", ".join(dict.fromkeys(a for i in plan.inputs for a in i.dynamic.values())),
            seconds=round(time.perf_counter() - begin, 1),
            nodes=sum(1 for _ in model.graph),
            forward=report.difference("loss"),
            why="the process died while computing gradients",
        )
        row.save()
        # Some heads drop by a rate of their own, whatever the config says.
        trained = differentiated(without_dropout(model))
        found = gradient_report_of(trained, plan)
        worst = found.worst
        why = "" if found.ok else f"gradient of {worst.output} at {worst.shape}{_sensitivity(plan)}"
        row = replace(row, nodes_training=sum(1 for _ in trained.graph), gradient=worst.difference, why=why)
    except Exception as error:  # Whatever it is, it is the row's finding; the run goes on.
        row = replace(row, why=_one_line(error))
    row.save()
    return row


def _source(name: str, attention: str) -> Source:
    from fuseline.exporters.sources import resolve
    from fuseline.tools.campaigns import plain_modules, zoo

    if attention != PLAIN:
        return resolve(zoo.build(name, attention=attention))
    module, inputs = plain_modules.build(name)
    source = resolve(module)
    source.example_inputs = inputs
    return source


def _sensitivity(plan: Plan) -> str:
    """How far torch's own gradients move with the last digits of the input, where it is made of numbers."""
    import torch

    from fuseline.exporters.verify import check_gradients

    torch.manual_seed(0)

    def moved(feeds: dict[str, Any]) -> dict[str, Any]:
        given = [torch.from_numpy(feeds[item.name]) for item in plan.inputs]
        noisy = [x * (1 + 1e-6 * torch.randn_like(x)) if x.is_floating_point() else x for x in given]
        return {name: gradient.numpy() for name, gradient in plan.expected_gradients(noisy).items()}

    own = check_gradients(plan, moved).worst.difference
    return f"; torch's own move by {own:.0e} when the input changes by 1e-6" if own else ""


def _one_line(error: Exception) -> str:
    """What an error says, short enough for a cell; a heading takes its first item along."""
    lines = str(error).strip().splitlines()
    text = " ".join(line.strip() for line in (lines[:2] if lines[0].endswith(":") else lines[:1]))
    # A place in the code without the machine that it is on.
    return re.sub(r"/\S*/(?=fuseline/|site-packages/)", "", text).replace("|", "/")[:_CELL]


def render(rows: Sequence[Row]) -> str:
    """The page: a summary and one line per row, for architectures and for plain modules."""
    plain = [row for row in rows if row.attention == PLAIN]
    rows = [row for row in rows if row.attention != PLAIN]
    green = sum(1 for row in rows if row.green)
    architectures = {row.name for row in rows}
    full = {n for n in architectures if all(row.green for row in rows if row.name == n)}
    lines = [
        _INTRODUCTION,
        f"**{len(full)} of {len(architectures)} architectures are green** in every attention implementation",
        f"that was measured ({green} of {len(rows)} rows).",
        "",
        *_HEADER,
        *(_line(row) for row in rows),
    ]
    if plain:
        green = sum(1 for row in plain if row.green)
        lines += ["", "# Plain torch modules", "", f"**{green} of {len(plain)} are green.**", "", *_HEADER]
        lines += [_line(row) for row in plain]
    return "\n".join(lines) + "\n"


_HEADER = (
    "| model | attention | task | export | loss | gradients | dynamic axes | nodes | time | |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def _line(row: Row) -> str:
    verdict = "green" if row.green else f"**{row.why or 'not measured'}**"
    nodes = f"{row.nodes} → {row.nodes_training or '–'}" if row.nodes else "–"
    exported = "ok" if row.nodes else "fails"
    found = [_number(row.forward), _number(row.gradient)]
    cells = [row.name, row.attention, row.task, exported, *found, row.axes, nodes]
    return "| " + " | ".join([*cells, f"{row.seconds:.0f}", verdict]) + " |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every row is green, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Coverage of the model zoo.")
    parser.add_argument("names", nargs="*", help="only these architectures")
    parser.add_argument("--attention", choices=["eager", "sdpa", PLAIN], help="only this implementation")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--render", action="store_true", help="only write the page from what is known")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return _work(options.names)
    wanted = [r for r in _wanted(options.names) if options.attention in (None, r.attention)]
    if not options.render:
        missing = [row for row in wanted if options.fresh or not row.path.exists()]
        _run(missing, options.processes)
    rows = [_load(row) for row in _wanted([]) if row.path.exists()]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(rows))
    console.print(f"{sum(r.green for r in rows)} of {len(rows)} rows are green; wrote {PAGE}")
    return 0 if all(row.green for row in rows) else 1


def _wanted(names: Sequence[str]) -> list[Row]:
    from fuseline.tools.campaigns import zoo
    from fuseline.tools.campaigns.plain_modules import MODULES

    chosen = names or [*zoo.names(), *MODULES]
    models = [Row(n, attention) for n in chosen if n in zoo.ZOO for attention in zoo.attentions(n)]
    return models + [Row(n, PLAIN) for n in chosen if n in MODULES]


def _load(row: Row) -> Row:
    return Row(**json.loads(row.path.read_text()))


def _run(rows: Sequence[Row], processes: int) -> None:
    """Deal the rows to workers; a worker that died is started again on what it had left."""
    piles = [list(rows[i::processes]) for i in range(processes)]
    workers: dict[int, subprocess.Popen[bytes]] = {}
    begin = time.time()
    while any(piles) or workers:
        for i, pile in enumerate(piles):
            if i in workers and workers[i].poll() is None:
                continue
            workers.pop(i, None)
            piles[i] = pile = [r for r in pile if not _done_since(r, begin)]
            if pile:
                names = [f"{r.name}:{r.attention}" for r in pile]
                command = [
                    sys.executable,
                    "-m",
                    "fuseline.tools.campaigns.coverage_models",
                    "--worker",
                    *names,
                ]
                workers[i] = subprocess.Popen(command)
        time.sleep(1)


def _done_since(row: Row, begin: float) -> bool:
    return row.path.exists() and row.path.stat().st_mtime >= begin


def _work(pairs: Sequence[str]) -> int:
    import torch

    torch.set_num_threads(1)
    for pair in pairs:
        name, attention = pair.split(":")
        row = measure(name, attention)
        verdict = "green" if row.green else row.why
        console.print(f"{name} {attention}: {_number(row.forward)} {_number(row.gradient)} {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
