"""The fusion: a pass given by a pattern, a condition and a replacement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import onnx_ir as ir

from fuseline.engine.authoring import blamed, defined_at
from fuseline.engine.constants import constant
from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.nodes import normal_domain, rank_of, read_by
from fuseline.engine.operators import Trait, record
from fuseline.engine.pass_ import Pass
from fuseline.engine.patterns.calling import call, check_made, check_parameters
from fuseline.engine.patterns.match import Match
from fuseline.engine.patterns.matcher import Matcher
from fuseline.engine.patterns.pattern import Op, Pattern, trace
from fuseline.engine.rewriting.builder import Builder
from fuseline.engine.rewriting.forms import Inexpressible
from fuseline.engine.rewriting.rewriter import Rewriter
from fuseline.engine.shapes.inference import infer
from fuseline.engine.shapes.values import ShapeValues

__all__ = ["Fusion"]

_PATIENCE = 1000  # rewrites of nothing but its own results that a fusion has beside one per node of the graph


class Fusion(Pass):
    """Base of all pattern passes: `match` is traced once, `check` decides, `replace` builds.

    Parameters of `match` are captures; `check` and `replace` ask for those they need by name, and for
    `context` (see Context). `check` returns None to accept, or the reason why not. Of overlapping matches
    the largest is taken, then the earliest. An intermediate result used outside the match is a reason to
    refuse, unless the pattern returns it as an output or marks it `_shared`.

    The same for training is the class `FuseXTraining(FuseX, target="training")`, which says only what is made
    in place of what: it is named `fuse-x-training`, runs before the gradient is built, and is the counterpart
    of `fuse-x`.
    """

    produces: ClassVar[tuple[str, ...]] = ()
    """The operators this fusion makes; expectations count them."""

    def __init_subclass__(cls, *, target: Literal["training"] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if target is not None:
            _retarget(cls, cls.__mro__[1], target)

    def match(self, op: Op, *captures: Any, **more: Any) -> Any:
        """The pattern."""
        raise NotImplementedError

    def check(self, *captures: Any, **more: Any) -> str | None:
        """None accepts the match; a text is the reason why it is refused."""
        return None

    def replace(self, op: Builder, *captures: Any, **more: Any) -> Any:
        """The new value, or one per output of the pattern."""
        raise NotImplementedError

    @classmethod
    def unwritten(cls) -> str | None:
        return next((n for n in ("match", "replace") if getattr(cls, n) is getattr(Fusion, n)), None)

    def pattern(self) -> Pattern:
        """The traced pattern; `check` and `replace` must ask for nothing that it does not capture."""
        owner = self.name or type(self).__name__
        pattern = trace(self.match, owner)
        check_parameters(owner, self.check, pattern)
        check_parameters(owner, self.replace, pattern, skip=1)
        return pattern

    def run(self, model: Model, rewriter: Rewriter) -> int:
        matcher = Matcher(self.pattern(), model)
        for graph in list(model.graphs()):
            sweep = _Sweep(self, matcher, graph, rewriter)
            while sweep.once():
                pass
            if sweep.disordered:
                graph.sort()
        return rewriter.changes

    def sites(self, matcher: Matcher, graph: ir.Graph) -> Iterator[tuple[ir.Node, Match | str]]:
        """Every place where the pattern fits, with the match to take or the reason why it is refused."""
        nodes = list(graph)
        present = {(normal_domain(n.domain), n.op_type) for n in nodes}
        if not matcher.could_match(present):
            return
        anchors = matcher.pattern.anchors
        for node in nodes:
            if (normal_domain(node.domain), node.op_type) in anchors:
                verdict = self.judge(matcher, node)
                if verdict is not None:
                    yield node, verdict

    def judge(self, matcher: Matcher, root: ir.Node) -> Match | str | None:
        """The largest acceptable match at a node, the reason why there is none, or None if nothing fits."""
        best: Match | None = None
        refused: tuple[int, str] | None = None
        for match in matcher.at(root):
            if best is not None and len(match.nodes) <= len(best.nodes):
                continue
            reason = self._refusal(match, matcher.model)
            if reason is None and len(match.nodes) >= matcher.pattern.size:
                return match
            if reason is None:
                best = match
            elif refused is None or len(match.nodes) > refused[0]:
                refused = len(match.nodes), reason
        return best if best is not None or refused is None else refused[1]

    def _refusal(self, match: Match, model: Model) -> str | None:
        outside = _used_elsewhere(match)
        if outside is not None:
            return outside
        reason = call(self.name, self.check, None, match, model)
        if reason is None:
            return _raised_rank(match, model)
        if isinstance(reason, str):
            return reason
        raise PassError(
            f"{self.name!r}, check at {defined_at(self.check)}: it returned {reason!r}",
            hint="check returns None to accept a match, or the reason why not as a text",
        )

    def build(self, match: Match, rewriter: Rewriter) -> tuple[Builder, list[ir.Value]]:
        """The nodes that replace a match, and the values that replace its outputs."""
        builder = rewriter.builder(match.root)
        try:
            made = call(self.name, self.replace, builder, match, rewriter.model)
        except Inexpressible:
            builder.discard()
            raise
        values = list(made) if isinstance(made, tuple) else [made]
        if len(values) != len(match.outputs) or not all(isinstance(v, ir.Value) for v in values):
            found = "nothing" if made is None else repr(made)
            raise PassError(
                f"{self.name!r}, replace at {defined_at(self.replace)}: it returned {found} for the "
                f"{len(match.outputs)} outputs of {match.root.name!r}",
                hint="is a `return` missing? replace returns one value for each output of the pattern",
            )
        check_made(self.name, self.replace, builder, values, match)
        return builder, values


@dataclass
class _Sweep:
    """Applies one fusion to one graph, sweep by sweep, until nothing more fits."""

    fusion: Fusion
    matcher: Matcher
    graph: ir.Graph
    rewriter: Rewriter
    disordered: bool = False
    refused: set[tuple[ir.Node, str]] = field(default_factory=set)
    made: set[ir.Node] = field(default_factory=set)
    patience: int = field(init=False)

    def __post_init__(self) -> None:
        self.patience = _PATIENCE + len(self.graph)

    def once(self) -> bool:
        """Whether the sweep changed anything."""
        position = {node: index for index, node in enumerate(self.graph)}
        found: list[Match] = []
        for node, verdict in self.fusion.sites(self.matcher, self.graph):
            if isinstance(verdict, Match):
                found.append(verdict)
            else:
                self._refuse(node, verdict)
        found.sort(key=lambda m: (-len(m.nodes), position[m.root]))
        stale: set[ir.Node | ir.Value] = set()
        changed = False
        for match in found:
            current = self._current(match, stale)
            if current is None:
                continue
            if _makes_cycle(current, position):
                self._refuse(current.root, "one of its inputs depends on another of its outputs")
                continue
            if not self.rewriter.permit(current.root, f"{self.fusion.name} of {len(current.nodes)} nodes"):
                return False
            self._see_an_end(current)
            try:
                builder, values = self.fusion.build(current, self.rewriter)
            except Inexpressible as error:
                self.rewriter.withdraw(current.root, error.message)
                continue
            self._apply(current, builder, values, position)
            stale.update(current.nodes, current.outputs)
            changed = True
        return changed

    def _refuse(self, node: ir.Node, reason: str) -> None:
        if (node, reason) not in self.refused:
            self.refused.add((node, reason))
            self.rewriter.reject(node, reason)

    def _current(self, match: Match, stale: set[ir.Node | ir.Value]) -> Match | None:
        """The match as the graph is now: an earlier rewrite may have taken or moved parts of it."""
        if stale.isdisjoint(match.nodes) and stale.isdisjoint(match.values()):
            return match
        if match.root.graph is None:
            return None
        verdict = self.fusion.judge(self.matcher, match.root)
        return verdict if isinstance(verdict, Match) else None

    def _see_an_end(self, match: Match) -> None:
        """A replacement that fits its own pattern would be replaced for ever."""
        if not self.made.issuperset(match.nodes):
            return
        self.patience -= 1
        if self.patience < 0:
            place = defined_at(self.fusion.replace)
            raise PassError(
                f"{self.fusion.name!r}, replace at {place}: "
                f"it goes on replacing what it made itself, last at {match.root.name!r}",
                hint="its replacement fits its own pattern: let check refuse what already has that form",
            )

    def _apply(
        self, match: Match, builder: Builder, values: list[ir.Value], position: dict[ir.Node, int]
    ) -> None:
        old = sorted(match.nodes, key=lambda n: position.get(n, -1))
        old.remove(match.root)
        old.append(match.root)
        with blamed(self.fusion.name, self.fusion.replace):
            self.rewriter.replace(old, builder.nodes, zip(match.outputs, values, strict=True))
        self._remove_dead(match)
        self.made.update(builder.nodes)
        for node in builder.nodes:
            position[node] = position.get(match.root, 0)
        self.disordered = self.disordered or len(match.outputs) > 1

    def _remove_dead(self, match: Match) -> None:
        """What led to a match and nobody reads any more would look like another user of its inputs."""
        stack = [v.producer() for v in match.values()]
        while stack:
            node = stack.pop()
            if (
                node is None
                or node.graph is None
                or any(v.uses() or v.is_graph_output() for v in node.outputs)
            ):
                continue
            stack.extend(v.producer() for v in node.inputs if v is not None)
            self.rewriter.remove(node)


def _retarget(twin: type[Pass], original: type[Pass], target: str) -> None:
    """Make a fusion the one that does the same for another target, and let the original name it."""
    if original.phase != "inference" or original.counterpart is not None:
        taken = original.counterpart or f"it is for {original.phase!r}"
        raise PassError(
            f"{twin.__name__} is declared as {original.name!r} for {target}, which cannot be: {taken}",
            hint="a fusion for inference has one twin for training",
        )
    twin.name, twin.phase, twin.counterpart = f"{original.name}-{target}", "pre-gradient", None
    original.counterpart = twin.name


def _used_elsewhere(match: Match) -> str | None:
    inside, outputs = set(match.nodes), set(match.outputs)
    for node in match.nodes:
        if node in match.shared:
            continue
        for value in node.outputs:
            if value in outputs:
                continue
            if value.is_graph_output():
                return f"the intermediate {value.name!r} of {node.op_type} is an output of the graph"
            user = next((u for u, _ in value.uses() if u not in inside), None)
            if user is not None:
                return f"the intermediate {value.name!r} of {node.op_type} is also used by {user.name!r}"
    return None


def _raised_rank(match: Match, model: Model) -> str | None:
    """A constant of one element is a number to a pattern, but with many axes it adds some to the result."""
    for node in match.nodes:
        operator = record(node)
        if operator is None or not operator.has(Trait.ELEMENTWISE) or len(node.inputs) < 2:
            continue
        for value in node.inputs:
            array = constant(model, value, at_most=1)
            if array is None or array.size != 1 or array.ndim == 0:
                continue
            others = [_rank(model, v) for v in node.inputs if v is not None and v is not value]
            if others and (None in others or max(r for r in others if r is not None) < array.ndim):
                return f"the constant of one element has {array.ndim} axes, and may give the result more"
    return None


def _rank(model: Model, value: ir.Value) -> int | None:
    """The number of axes, worked out where the graph does not say."""
    known, producer = rank_of(value), value.producer()
    if known is not None or producer is None:
        return known
    typings = infer(producer, ShapeValues(model)) or ()
    dims = typings[0][1] if typings and value.index() == 0 else None
    return None if dims is None else len(dims)


def _makes_cycle(match: Match, position: dict[ir.Node, int]) -> bool:
    """Whether an input of a match with several outputs depends on one of these outputs."""
    if len(match.outputs) == 1:
        return False
    inside = set(match.nodes)
    first = min(position.get(n, 0) for n in inside)
    stack = [v.producer() for v in match.values()]
    seen: set[ir.Node] = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen or position.get(node, 0) < first:
            continue
        if node in inside:
            return True
        seen.add(node)
        stack.extend(v.producer() for v in read_by(node))
    return False
