"""The structural diff of two models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import onnx_ir as ir

from fuseline.engine.collector import collector_paused
from fuseline.engine.diff.content import content_hash, is_tensor, same_content
from fuseline.engine.diff.matching import Matching, match
from fuseline.engine.diff.result import (
    AttributeChange,
    GraphDiff,
    InitializerChange,
    InputChange,
    ModelDiff,
    NodeChange,
    TextChange,
)
from fuseline.engine.diff.snapshot import GraphInfo, NodeInfo, Snapshot
from fuseline.engine.model import Model

__all__ = ["diff"]


def diff(before: Model | Snapshot, after: Model | Snapshot) -> ModelDiff:
    """What changed from one model to the other. Node order alone is no change."""
    with collector_paused():
        return _models(before, after)


def _models(before: Model | Snapshot, after: Model | Snapshot) -> ModelDiff:
    old = before if isinstance(before, Snapshot) else Snapshot.of(before)
    new = after if isinstance(after, Snapshot) else Snapshot.of(after)
    common = [n for n in old.functions if n in new.functions]
    version = TextChange("ir_version", str(old.ir_version), str(new.ir_version))
    return ModelDiff(
        graph=_graphs(old.graph, new.graph, {}),
        functions=tuple(d for n in common if (d := _graphs(old.functions[n], new.functions[n], {}))),
        functions_added=tuple(g for n, g in new.functions.items() if n not in old.functions),
        functions_removed=tuple(g for n, g in old.functions.items() if n not in new.functions),
        opsets=tuple(_texts(_as_text(old.opsets), _as_text(new.opsets))),
        ir_version=version if old.ir_version != new.ir_version else None,
        parameters=tuple(_texts(old.parameters, new.parameters)),
    )


def _as_text(versions: Mapping[str, int]) -> dict[str, str]:
    return {domain: str(version) for domain, version in versions.items()}


def _texts(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[TextChange]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield TextChange(name, old.get(name), new.get(name))


def _graphs(old: GraphInfo, new: GraphInfo, outer: Mapping[str, str]) -> GraphDiff:
    initializers, renamed = _initializers(old, new)
    leaves = _leaves(old, new) | renamed
    matching = match(old, new, outer, leaves)
    gone, came = matching.unmatched()
    changed = (_nodes(old.nodes[i], new.nodes[j], matching) for i, j in matching.forward.items())
    removed, added = tuple(old.nodes[i] for i in gone), tuple(new.nodes[i] for i in came)
    return GraphDiff(
        path=new.path,
        before=old,
        after=new,
        pairs=matching.forward,
        added=added,
        removed=removed,
        changed=tuple(sorted((c for c in changed if c), key=_order(new))),
        inputs=tuple(_texts(old.inputs, new.inputs)),
        outputs=tuple(_texts(old.outputs, new.outputs)),
        initializers=initializers,
        replaced_by=_replaced_by(removed, added),
    )


def _order(graph: GraphInfo) -> Any:
    position = {id(node): index for index, node in enumerate(graph.nodes)}
    return lambda change: position[id(change.after)]


def _leaves(old: GraphInfo, new: GraphInfo) -> dict[str, str]:
    """Inputs and initializers by name; inputs of another name by position, if as many and of equal type."""
    same = {n: n for n in (*old.inputs, *old.initializers) if n in new.inputs or n in new.initializers}
    if len(old.inputs) == len(new.inputs):
        for (a, type_a), (b, type_b) in zip(old.inputs.items(), new.inputs.items(), strict=True):
            if a not in same and b not in old.inputs and type_a == type_b:
                same[a] = b
    return same


def _initializers(old: GraphInfo, new: GraphInfo) -> tuple[tuple[InitializerChange, ...], dict[str, str]]:
    """The changes, and the renames among them: gone and come with equal content."""
    changes: list[InitializerChange] = []
    by_content: dict[str, list[str]] = defaultdict(list)
    came = [n for n in new.initializers if n not in old.initializers]
    gone = [n for n in old.initializers if n not in new.initializers]
    if came and gone:
        for name in reversed(came):
            by_content[_hash(new.initializers[name])].append(name)
    renamed: dict[str, str] = {}
    for name, tensor in old.initializers.items():
        if name in new.initializers:
            if not same_content(tensor, new.initializers[name]):
                changes.append(InitializerChange("changed", name, name, tensor, new.initializers[name]))
        elif by_content.get(_hash(tensor) if by_content else ""):
            renamed[name] = by_content[_hash(tensor)].pop()
            changes.append(InitializerChange("renamed", name, renamed[name], tensor, tensor))
        else:
            changes.append(InitializerChange("removed", name, None, tensor, None))
    taken = set(renamed.values())
    for name in came:
        if name not in taken:
            changes.append(InitializerChange("added", None, name, None, new.initializers[name]))
    return tuple(changes), renamed


def _hash(tensor: ir.TensorProtocol | None) -> str:
    return content_hash(tensor) if tensor is not None else "no content"


def _nodes(old: NodeInfo, new: NodeInfo, matching: Matching) -> NodeChange | None:
    inputs = tuple(_inputs(old, new, matching.values))
    attributes = tuple(_attributes(old.attributes, new.attributes))
    types = tuple(
        TextChange(b, was, now)
        for b, was, now in zip(new.outputs, old.types, new.types, strict=False)
        if was != now and b
    )
    common = [k for k in old.graphs if k in new.graphs]
    graphs = tuple(d for k in common if (d := _graphs(old.graphs[k], new.graphs[k], matching.values)))
    # Values are what others refer to; a node's own name carries no meaning and is often made up on loading.
    renamed = old.outputs != new.outputs
    if not (inputs or attributes or types or graphs or renamed):
        return None
    return NodeChange(old, new, renamed, inputs, attributes, types, graphs)


def _inputs(old: NodeInfo, new: NodeInfo, names: Mapping[str, str]) -> Iterator[InputChange]:
    for index in range(max(len(old.inputs), len(new.inputs))):
        was = old.inputs[index] if index < len(old.inputs) else ""
        now = new.inputs[index] if index < len(new.inputs) else ""
        if names.get(was, was) != now:
            yield InputChange(index, was, now)


def _attributes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[AttributeChange]:
    for name in dict.fromkeys((*old, *new)):
        present: Literal["both", "before", "after"] = (
            "both" if name in old and name in new else "before" if name in old else "after"
        )
        was, now = old.get(name), new.get(name)
        if present != "both" or not _same(was, now):
            yield AttributeChange(name, was, now, present)


def _same(was: Any, now: Any) -> bool:
    if is_tensor(was) and is_tensor(now):
        return same_content(was, now)
    return bool(was == now) or (was != was and now != now)


def _replaced_by(removed: tuple[NodeInfo, ...], added: tuple[NodeInfo, ...]) -> dict[str, tuple[str, ...]]:
    gone = {n.name for n in removed}
    found: dict[str, list[str]] = defaultdict(list)
    for node in added:
        for name in node.replaces:
            if name in gone:
                found[name].append(node.name)
    return {name: tuple(by) for name, by in found.items()}
