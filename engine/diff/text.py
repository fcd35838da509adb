"""A diff as lines: like a unified diff, but of nodes, in the order of the graph.

`-` a node that went, `+` one that came (with the pass that made it and the nodes it replaces), `~` one that
is still there but rewired, renamed, retyped or with other attributes, shown as `old → new`. Hunks that are
equal but for names are shown once, with `×N` and their places; a constant of one element carries its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.text import Text

from fuseline.engine.diff.alike import Hunk, together
from fuseline.engine.diff.layout import Entry, hunks, layout
from fuseline.engine.diff.result import (
    AttributeChange,
    GraphDiff,
    InitializerChange,
    ModelDiff,
    NodeChange,
    TextChange,
)
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo
from fuseline.engine.graph_text import (
    attribute_text,
    attributes_text,
    node_text,
    operand_text,
    printable,
    scalars,
    tensor_text,
    type_suffix,
)
from fuseline.engine.plurals import counted

__all__ = ["Line", "lines", "rich_text", "summary", "to_text"]

Kind = Literal["header", "hunk", "same", "added", "removed", "changed"]
_SIGNS: dict[Kind, str] = {"added": "+ ", "removed": "- ", "changed": "~ ", "same": "  "}
_STYLES: dict[Kind, str] = {
    "header": "bold",
    "hunk": "cyan",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "same": "",
}
_NAMES_SHOWN = 6


@dataclass(frozen=True)
class Line:
    """One line; `note` is the provenance, shown behind it. `depth` grows inside subgraphs."""

    kind: Kind
    text: str
    note: str = ""
    depth: int = 0

    def __str__(self) -> str:
        note = f"  # {self.note}" if self.note else ""
        return printable(f"{_SIGNS.get(self.kind, '')}{'    ' * self.depth}{self.text}{note}")


def to_text(diff: ModelDiff, *, context: int = 3) -> str:
    """Plain text, for files and pipes."""
    return "".join(f"{line}\n" for line in lines(diff, context=context))


def rich_text(diff: ModelDiff, *, context: int = 3) -> Text:
    """The same in colour."""
    text = Text(no_wrap=True, overflow="ignore")
    for line in lines(diff, context=context):
        body = str(Line(line.kind, line.text, depth=line.depth))
        text.append(body, style=_STYLES[line.kind])
        text.append(f"  # {printable(line.note)}\n" if line.note else "\n", style="dim")
    return text


def summary(diff: ModelDiff) -> str:
    """`3 removed, 1 added, 2 rewired`, or `equal`."""
    parts = [f"{count} {kind}" for kind, count in diff.counts().items() if count]
    return ", ".join(parts) or "equal"


def lines(diff: ModelDiff, *, context: int = 3) -> Iterator[Line]:
    """Header, opsets, parameters, then every graph that changed."""
    yield Line("header", summary(diff))
    if diff.ir_version is not None:
        yield _text_line(diff.ir_version, "")
    for change in diff.opsets:
        yield _text_line(change, "opset ")
    for change in diff.parameters:
        yield _text_line(change, "parameter ")
    for graph in (diff.graph, *diff.functions):
        if graph:
            yield from _graph_lines(graph, context, 0)
    for gone in diff.functions_removed:
        yield from _whole_graph(gone, "removed", 0)
    for came in diff.functions_added:
        yield from _whole_graph(came, "added", 0)


def _text_line(change: TextChange, word: str, depth: int = 0) -> Line:
    name = f"{word}{change.name}: "
    if change.before is None:
        return Line("added", f"{name}{change.after}", depth=depth)
    if change.after is None:
        return Line("removed", f"{name}{change.before}", depth=depth)
    return Line("changed", f"{name}{_arrow(change.before, change.after)}", depth=depth)


def _arrow(before: str, after: str) -> str:
    return after if before == after else f"{before or '_'} → {after or '_'}"


def _graph_lines(diff: GraphDiff, context: int, depth: int) -> Iterator[Line]:
    was, now = len(diff.before.nodes), counted(len(diff.after.nodes), "node")
    sizes = now if was == len(diff.after.nodes) else f"{was:,} → {now}"
    yield Line("header", f"graph {diff.path} ({sizes})", depth=depth)
    for change in diff.inputs:
        yield _text_line(change, "input ", depth)
    for change in diff.outputs:
        yield _text_line(change, "output ", depth)
    for initializer in diff.initializers:
        yield _initializer_line(initializer, depth)
    numbers = scalars(diff.before, diff.after)
    for hunk in together(list(hunks(layout(diff), context)), numbers):
        yield _hunk_line(diff.path, hunk, depth)
        for entry in hunk.entries:
            yield from _entry_lines(entry, diff, numbers, context, depth)


def _hunk_line(path: str, hunk: Hunk, depth: int) -> Line:
    where = f"@@ {path}: {hunk.start + 1}–{hunk.start + len(hunk.entries)} @@"
    if len(hunk.places) > 1:
        where += f" ×{len(hunk.places)}: {_some(hunk.places)}"
    return Line("hunk", where, depth=depth)


def _initializer_line(change: InitializerChange, depth: int) -> Line:
    match change.kind:
        case "added":
            return Line("added", f"initializer {change.after} = {tensor_text(change.new)}", depth=depth)
        case "removed":
            return Line("removed", f"initializer {change.before} = {tensor_text(change.old)}", depth=depth)
        case "renamed":
            names = _arrow(change.before or "", change.after or "")
            return Line("changed", f"initializer {names} = {tensor_text(change.new)}", depth=depth)
    contents = _arrow(tensor_text(change.old), tensor_text(change.new))
    return Line("changed", f"initializer {change.after} = {contents}", depth=depth)


def _entry_lines(
    entry: Entry, diff: GraphDiff, numbers: Mapping[str, str], context: int, depth: int
) -> Iterator[Line]:
    if entry.change is not None:
        yield Line("changed", _changed_text(entry.change, numbers), depth=depth)
        for inner in entry.change.graphs:
            yield from _graph_lines(inner, context, depth + 1)
        return
    note = ""
    if entry.kind == "removed":
        by = diff.replaced_by.get(entry.node.name, ())
        note = f"replaced by {_some(by)}" if by else ""
    elif entry.kind == "added":
        note = _provenance(entry.node)
    yield Line(entry.kind, node_text(entry.node, numbers), note, depth)
    if entry.kind != "same":
        for graph in entry.node.graphs.values():
            yield from _whole_graph(graph, entry.kind, depth + 1)


def _whole_graph(
    graph: GraphInfo, kind: Literal["added", "removed", "changed"], depth: int
) -> Iterator[Line]:
    yield Line(
        kind, f"graph {graph.path} ({', '.join(graph.inputs)}) -> ({', '.join(graph.outputs)})", "", depth
    )
    for name, tensor in graph.initializers.items():
        yield Line(kind, f"  initializer {name} = {tensor_text(tensor)}", "", depth)
    numbers = scalars(graph)
    for node in graph.nodes:
        yield Line(kind, f"  {node_text(node, numbers)}", "", depth)
        for inner in node.graphs.values():
            yield from _whole_graph(inner, kind, depth + 1)


def _provenance(node: NodeInfo) -> str:
    parts = [node.made_by] if node.made_by else []
    if node.replaces:
        parts.append(f"replaces {_some(node.replaces)}")
    if node.module:
        parts.append(f"in {node.module}")
    return " ".join(parts)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _changed_text(change: NodeChange, numbers: Mapping[str, str]) -> str:
    old, new = change.before, change.after
    outputs = _arrow(", ".join(old.outputs), ", ".join(new.outputs))
    rewired = {c.index: c for c in change.inputs}
    inputs = [
        _arrow(operand_text(rewired[i].before, numbers), operand_text(rewired[i].after, numbers))
        if i in rewired
        else operand_text(new.inputs[i] if i < len(new.inputs) else "", numbers)
        for i in range(max(len(old.inputs), len(new.inputs)))
    ]
    retyped = {c.name: c for c in change.types}
    types = [
        _arrow(retyped[o].before or "", retyped[o].after or "") if o in retyped else t
        for o, t in zip(new.outputs, new.types, strict=True)
        if o
    ]
    attributes = _attributes_text(change)
    return f"{outputs} = {new.op}({', '.join(inputs)}){attributes}{type_suffix(types)}"


def _attributes_text(change: NodeChange) -> str:
    if not change.attributes:
        return attributes_text(change.after.attributes)
    changed = {c.name for c in change.attributes}
    parts = [f"{k}={attribute_text(v)}" for k, v in change.after.attributes.items() if k not in changed]
    parts.extend(_attribute_change(c) for c in change.attributes)
    return " {" + ", ".join(sorted(parts)) + "}"


def _attribute_change(change: AttributeChange) -> str:
    before = "_" if change.present == "after" else attribute_text(change.before)
    after = "_" if change.present == "before" else attribute_text(change.after)
    return f"{change.name}={_arrow(before, after)}"
