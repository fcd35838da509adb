"""Both versions of a graph in one order: the order after, with removed nodes where they stood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fuseline.engine.diff.result import GraphDiff, NodeChange
from fuseline.engine.diff.snapshot import NodeInfo

__all__ = ["Entry", "hunks", "layout"]


@dataclass(frozen=True)
class Entry:
    """One line of the merged graph. `node` is the one after, or for a removed node the one before."""

    kind: Literal["same", "added", "removed", "changed"]
    node: NodeInfo
    change: NodeChange | None = None


def layout(diff: GraphDiff) -> list[Entry]:
    """Every node of both sides once."""
    waiting, rest = _removed_by_place(diff)
    changes = {id(c.after): c for c in diff.changed}
    kept = set(diff.pairs.values())
    entries: list[Entry] = []
    for index, node in enumerate(diff.after.nodes):
        entries.extend(Entry("removed", gone) for gone in waiting.get(index, ()))
        if index not in kept:
            entries.append(Entry("added", node))
        elif id(node) in changes:
            entries.append(Entry("changed", node, changes[id(node)]))
        else:
            entries.append(Entry("same", node))
    entries.extend(Entry("removed", node) for node in rest)
    return entries


def _removed_by_place(diff: GraphDiff) -> tuple[dict[int, list[NodeInfo]], list[NodeInfo]]:
    """Removed nodes by the index after which they precede: their replacement's, else that behind the kept
    node they followed. The second list is of those behind everything."""
    index_of = {node.name: i for i, node in enumerate(diff.after.nodes)}
    waiting: dict[int, list[NodeInfo]] = defaultdict(list)
    behind = 0
    for index, node in enumerate(diff.before.nodes):
        if index in diff.pairs:
            behind = diff.pairs[index] + 1
            continue
        replacements = [index_of[n] for n in diff.replaced_by.get(node.name, ())]
        waiting[min(replacements, default=behind)].append(node)
    return waiting, waiting.pop(len(diff.after.nodes), [])


def hunks(entries: Sequence[Entry], context: int) -> Iterator[tuple[int, list[Entry]]]:
    """Runs of changes with `context` unchanged neighbours, each with the position of its first entry."""
    start: int | None = None
    end = 0
    for index, entry in enumerate(entries):
        if entry.kind == "same":
            continue
        if start is None:
            start = max(0, index - context)
        elif index - context > end:
            yield start, list(entries[start:end])
            start = index - context
        end = min(len(entries), index + context + 1)
    if start is not None:
        yield start, list(entries[start:end])
