"""Does a redesign change a graph? Records what the ready pipelines make of many models, and compares later.

    python -m fuseline.tools.campaigns.replay record [FOLDER] [--only REGEX] [--quick]
    python -m fuseline.tools.campaigns.replay compare [FOLDER] [--explain] [--details] …

The folder (default: $FUSELINE_REPLAY, or build/replay) holds every model as it was before any pass, and the
canonical text of each transformed graph. Recording goes on where it stopped; comparing needs neither torch
nor the network. `--details` compares what is known about types inside the graphs, too. A difference that is
meant belongs into replay_justified.yaml with its reason; exit 1 if there is any other.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fuseline.engine.canonical import local_lines, with_plain_constants, without_details
from fuseline.tools.campaigns import replay_cases
from fuseline.tools.campaigns.replay_cases import Case
from fuseline.tools.campaigns.replay_justified import justified_by
from fuseline.tools.campaigns.replay_justified import load as load_classes
from fuseline.tools.console import console

__all__ = ["compare", "main", "record"]

QUICK = r"zoo-\w+/(bert|gpt2|llama|t5|vit|resnet)-|third-party/(silero|paraphrase)|node/test_[abc]"
_SHOWN_LINES = 40


def record(folder: Path, wanted: re.Pattern[str], processes: int) -> None:
    """Make what the record lacks: first the models, then the texts."""
    from fuseline.tools.campaigns import replay_models

    replay_models.keep_all(folder, wanted, processes)
    replay_cases.transform_all(replay_cases.cases(folder, wanted), folder, processes)


def compare(folder: Path, into: Path, wanted: re.Pattern[str], processes: int) -> list[Case]:
    """Transform every recorded model again, the new texts going `into` a folder; returns the cases."""
    recorded = [c for c in replay_cases.cases(folder, wanted) if c.text(folder).is_file()]
    replay_cases.transform_all(recorded, into, processes)
    return recorded


def differing(recorded: Sequence[Case], folder: Path, into: Path, *, details: bool) -> list[Case]:
    """The cases whose graph is another one now."""
    return [c for c in recorded if _shown(c, folder, details) != _shown(c, into, details)]


def _shown(case: Case, folder: Path, details: bool) -> str:
    """A constant is the same as a node and as an initializer: either computes nothing."""
    text = with_plain_constants(case.read(folder))
    return text if details else without_details(text)


def explanation(case: Case, folder: Path, into: Path, *, details: bool) -> list[str]:
    """The lines that went (-) and that came (+), operators in place of numbers.

    One of several equal lines went (<), or came to those that were there (>).
    """
    was, now = (Counter(local_lines(_shown(case, where, details))) for where in (folder, into))
    lost = [f"{'<' if line in now else '-'} {line}" for line in (was - now).elements()]
    gained = [f"{'>' if line in was else '+'} {line}" for line in (now - was).elements()]
    return lost + gained or ["only the connections differ"]


def report(different: Sequence[Case], folder: Path, into: Path, options: argparse.Namespace) -> int:
    """Print what differs, and count what does so without justification."""
    classes = load_classes()
    unjustified, meant = 0, Counter[str]()
    for case in different:
        lines = explanation(case, folder, into, details=options.details)
        used, left = justified_by(str(case), lines, classes)
        if not left:
            meant.update(used)
            continue
        unjustified += 1
        console.print(f"differs: {case}", highlight=False)
        if options.explain:
            more = [f"… {len(left) - _SHOWN_LINES} more lines"] * (len(left) > _SHOWN_LINES)
            shown = [f"    {line}" for line in (*left[:_SHOWN_LINES], *more)]
            console.print("\n".join(shown), highlight=False)
    for found in classes:
        if meant[found.name]:
            console.print(f"meant in {meant[found.name]} graphs: {found.name}: {found.reason}")
    return unjustified


def main() -> int:
    options = _options()
    wanted = re.compile(options.only or (QUICK if options.quick else ""))
    if options.action == "record":
        record(options.folder, wanted, options.processes)
        console.print(f"{len(replay_cases.cases(options.folder, wanted))} cases are in {options.folder}")
        return 0
    with tempfile.TemporaryDirectory(prefix="fuseline-replay-") as temporary:
        into = options.into or Path(temporary)
        recorded = compare(options.folder, into, wanted, options.processes)
        if not recorded:
            console.print(
                f"nothing is recorded in {options.folder}: run `replay record {options.folder}` first"
            )
            return 2
        different = differing(recorded, options.folder, into, details=options.details)
        unjustified = report(different, options.folder, into, options)
    console.print(
        f"{len(recorded) - len(different)} of {len(recorded)} graphs are as recorded, "
        f"{len(different) - unjustified} differ as is meant, {unjustified} otherwise"
    )
    return 1 if unjustified else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare"))
    default = Path(os.environ.get("FUSELINE_REPLAY", "build/replay"))
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--only", default="", help="models whose name this regular expression finds")
    parser.add_argument("--quick", action="store_true", help=f"the same as --only '{QUICK}'")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--explain", action="store_true", help="show the lines that no class justifies")
    parser.add_argument("--details", action="store_true", help="compare types inside the graphs, too")
    parser.add_argument("--into", type=Path, help="keep the new texts here, and go on with what is there")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
