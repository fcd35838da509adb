"""Why a fusion applies, and where it nearly does: the report behind `fuseline passes explain`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import onnx_ir as ir

from fuseline.engine.model import Model
from fuseline.engine.nodes import normal_domain
from fuseline.engine.patterns.fusion import Fusion
from fuseline.engine.patterns.match import Failure, Match
from fuseline.engine.patterns.matcher import Matcher
from fuseline.engine.plurals import counted
from fuseline.engine.rewriting.rewriter import MODULE_KEY, Rewriter

__all__ = ["Explanation", "NearMiss", "Site", "explain"]


@dataclass(frozen=True)
class Site:
    """A place where the fusion applies."""

    root: str
    op_type: str
    module: str | None
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NearMiss:
    """A place where it nearly does: `matched` of `size` nodes fitted, then `node` did not.

    Where all nodes fitted and the match was refused, `found` is the reason and `expected` is empty.
    """

    root: str
    module: str | None
    matched: int
    size: int
    node: str
    op_type: str
    found: str
    expected: str

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        if not self.expected:
            return f"{self.root}{where}: all nodes fit, but {self.found}"
        return (
            f"{self.root}{where}: {self.matched} of {self.size} nodes fit, then at {self.op_type} "
            f"{self.node!r}: found {self.found}, expected {self.expected}"
        )


@dataclass(frozen=True)
class Explanation:
    """All matches in graph order, and near misses, the nearest first."""

    name: str
    summary: str
    matches: tuple[Site, ...]
    near_misses: tuple[NearMiss, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.summary}", counted(len(self.matches), "match")]
        for site in self.matches:
            where = f" in {site.module}" if site.module else ""
            lines.append(f"  {site.op_type} {site.root}{where}: {counted(len(site.nodes), 'node')}")
        lines.append(counted(len(self.near_misses), "near miss"))
        lines.extend(f"  {miss}" for miss in self.near_misses)
        return "\n".join(lines)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def explain(fusion: Fusion, model: Model, *, at_most: int = 10, any_root: bool = False) -> Explanation:
    """Where `fusion` matches in `model`, and its nearest misses; the model is not changed.

    With `any_root` the one node that does not fit may also be the pattern's last, which costs a look at every
    node of the model.

    Matches are replaced in a copy: a mistake in `replace` shows here too, and what has no form in the model's
    opset, or would make a cycle, is a miss.
    """
    matcher = Matcher(fusion.pattern(), model, tracing=True)
    matches: list[Match] = []
    misses: list[tuple[Failure, str | None]] = []
    for graph in model.graphs():
        for node in graph:
            if not any_root and (normal_domain(node.domain), node.op_type) not in matcher.pattern.anchors:
                continue
            verdict = fusion.judge(matcher, node)
            if isinstance(verdict, Match):
                matches.append(verdict)
            elif verdict is not None:
                misses.append((Failure(node, node, matcher.pattern.size, verdict, ""), verdict))
            elif matcher.failure is not None:
                misses.append((matcher.failure, None))
    refused = _refused(fusion, model) if matches else {}
    for match in [m for m in matches if m.root.name in refused]:
        matches.remove(match)
        reason = refused[match.root.name or ""]
        misses.append((Failure(match.root, match.root, matcher.pattern.size, reason, ""), reason))
    return Explanation(
        fusion.name,
        fusion.summary(),
        tuple(_site(m) for m in matches),
        tuple(_near_misses(matcher.pattern.size, matches, misses)[:at_most]),
    )


def _refused(fusion: Fusion, model: Model) -> dict[str, str]:
    """What is left alone when the matches are really replaced: the name of the node, and why."""
    if any(model.has(c.property) != c.holds for c in fusion.conditions()):
        return {}
    copy = model.clone()
    rewriter = Rewriter(copy, fusion.name)
    fusion.run(copy, rewriter)
    rewritten = {rewrite.site for rewrite in rewriter.rewrites}
    return {r.site: r.reason for r in rewriter.rejections if r.site not in rewritten}


def _near_misses(size: int, matches: list[Match], misses: list[tuple[Failure, str | None]]) -> list[NearMiss]:
    taken = {node for match in matches for node in match.nodes}
    # What fits little more than any node of the same kind would is no near miss.
    enough = min(1, size - 2) + size // 5 if size > 1 else 0
    worth = [(f, r) for f, r in misses if f.root not in taken and (r or f.matched > enough)]
    worth.sort(key=lambda item: (-item[0].matched, item[1] is None))
    nearest: list[NearMiss] = []
    for failure, refusal in worth:
        nearest.append(_near_miss(failure, size, refusal))
    return nearest


def _site(match: Match) -> Site:
    names = tuple(n.name or n.op_type for n in match.nodes)
    return Site(match.root.name or "", match.root.op_type, _module(match.nodes), names)


def _near_miss(failure: Failure, size: int, refusal: str | None) -> NearMiss:
    node = failure.node
    return NearMiss(
        root=failure.root.name or failure.root.op_type,
        module=_module((node, failure.root)),
        matched=min(failure.matched, size),
        size=size,
        node=node.name or node.op_type,
        op_type=node.op_type,
        found=refusal or failure.found,
        expected=failure.expected,
    )


def _module(nodes: tuple[ir.Node, ...]) -> str | None:
    """The torch module that the nodes come from, as the exporter recorded it."""
    return next((n.metadata_props[MODULE_KEY] for n in nodes if MODULE_KEY in n.metadata_props), None)
