"""Where the time of a run goes: ONNX Runtime's profile of each node, brought back to operators and modules.

ONNX Runtime fuses and renames nodes itself. It writes the graph that it really runs, and what a node of that
graph computes has kept its name: so its time goes to the node of ours that makes the same value.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy.typing as npt
import onnx
import onnx_ir as ir

from fuseline.engine import runtime
from fuseline.engine.diff.snapshot import operator
from fuseline.engine.errors import FuselineError
from fuseline.engine.execution.plan import SessionOptions
from fuseline.engine.files import read_text
from fuseline.engine.memory.origins import backward_nodes
from fuseline.engine.model import Model
from fuseline.engine.operators.signatures import holds_graphs
from fuseline.engine.properties import Property
from fuseline.engine.rewriting.rewriter import MODULE_KEY, PASS_KEY
from fuseline.engine.training.step import TrainingStep

__all__ = ["NodeTime", "Profile", "read_profile", "record_profile"]

SCHEMA = "fuseline.profile"
_WARMUP = 3
_ENDING = "_kernel_time"
Feeds = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class NodeTime:
    """A node that ran: its seconds in one run without what ran inside it, and the bytes that it made."""

    name: str
    op: str
    module: str
    made_by: str
    backward: bool
    seconds: float
    bytes: int

    @property
    def place(self) -> str:
        """The module, and which half of a training step."""
        return f"backward.{self.module}".rstrip(".") if self.backward else self.module


@dataclass(frozen=True)
class Profile:
    """The nodes in the order of the run, and the seconds of the whole run."""

    model: str
    seconds: float
    runs: int
    nodes: Sequence[NodeTime]

    def by(self, key: Callable[[NodeTime], str]) -> dict[str, tuple[float, int, int]]:
        """Key → seconds, bytes made, nodes; what takes longest first."""
        found: dict[str, list[Any]] = defaultdict(lambda: [0.0, 0, 0])
        for node in self.nodes:
            row = found[key(node)]
            row[0], row[1], row[2] = row[0] + node.seconds, row[1] + node.bytes, row[2] + 1
        return {k: (v[0], v[1], v[2]) for k, v in sorted(found.items(), key=lambda item: -item[1][0])}

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "nodes": [asdict(n) for n in self.nodes]}


def read_profile(path: Path) -> Profile:
    """A profile that was written before."""
    try:
        data = json.loads(read_text(path, "profile"))
        if data["schema"] != SCHEMA:
            raise KeyError(SCHEMA)
        nodes = [NodeTime(**row) for row in data["nodes"]]
        return Profile(data["model"], data["seconds"], data["runs"], nodes)
    except (ValueError, KeyError, TypeError) as error:
        raise FuselineError(
            f"{path} is no profile", hint="make one with `fuseline profile MODEL -o FILE`"
        ) from error


def record_profile(model: Model, feeds: Feeds, *, name: str, runs: int, threads: int) -> Profile:
    """Run a graph, an inference one or a training step, under ONNX Runtime's profiler."""
    twin = _plainly_named(model)
    with tempfile.TemporaryDirectory(prefix="fuseline-profile-") as folder:
        written, optimized = _run(twin, feeds, Path(folder), runs + _WARMUP, threads)
        events = json.loads(written.read_text(encoding="utf-8"))
        origins = _origins(model, twin, optimized)
    turns = _turns(events)[_WARMUP:]
    nodes = _node_times(turns, origins, backward_nodes(model.graph))
    whole = median(turn["dur"] for turn, _ in turns) * 1e-6
    return Profile(name, whole, len(turns), nodes)


def _plainly_named(model: Model) -> Model:
    """The model, or a copy with plain names of nodes: the profiler escapes none in its file."""
    names = [node.name or "" for node in model.nodes()]
    if all(name.isprintable() and not set(name) & {'"', "\\"} for name in names):
        return model
    twin = model.clone()
    for index, node in enumerate(twin.nodes()):
        node.name = f"node_{index}"
    return twin


def _run(model: Model, feeds: Feeds, folder: Path, runs: int, threads: int) -> tuple[Path, Path]:
    """Gives the profiler's file and the graph that was run."""
    options = SessionOptions("all", threads, profile=str(folder / "run"))
    if model.has(Property.DIFFERENTIATED):
        step = TrainingStep(model, threads=threads, profile=options.profile)
        batch = {name: feeds[name] for name in step.inputs}
        for _ in range(runs):
            step.run(batch, seed=0)
        return step.end_profiling(), options.optimized_graph
    session = runtime.session(
        model, optimize="all", threads=threads, options=lambda settings: options.apply(settings, "runtime")
    )
    for _ in range(runs):
        runtime.run(session, feeds)
    return Path(session.end_profiling()), options.optimized_graph


def _origins(model: Model, twin: Model, optimized: Path) -> dict[str, ir.Node]:
    """Node that ran (by name) → the node of the model that makes the same value."""
    makers = {v.name: node for node in model.nodes() for v in node.outputs if v.name}
    pairs = zip(model.nodes(), twin.nodes(), strict=True)
    found = {str(ran.name): node for node, ran in pairs if ran.name}
    pending = [onnx.load(optimized, load_external_data=False).graph]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            pending.extend(a.g for a in node.attribute if a.HasField("g"))
            maker = next((makers[output] for output in node.output if output in makers), None)
            if maker is not None:
                found[node.name] = maker
    return found


def _turns(events: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Every run of the graph with the events of its nodes, in the order of time."""
    whole = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])
    nodes = sorted((e for e in events if e["name"].endswith(_ENDING)), key=lambda e: e["ts"])
    return [
        (run, [n for n in nodes if run["ts"] <= n["ts"] and n["ts"] + n["dur"] <= run["ts"] + run["dur"] + 1])
        for run in whole
    ]


def _node_times(
    turns: Sequence[tuple[Mapping[str, Any], list[Mapping[str, Any]]]],
    origins: Mapping[str, ir.Node],
    backward: set[ir.Node],
) -> list[NodeTime]:
    seconds: dict[str, list[float]] = defaultdict(list)
    about: dict[str, Mapping[str, Any]] = {}
    for _, events in turns:
        spent: dict[str, float] = defaultdict(float)
        for event, own in _own_times(events):
            name = event["name"].removesuffix(_ENDING)
            spent[name] += own * 1e-6
            about.setdefault(name, event["args"])
        for name, value in spent.items():
            seconds[name].append(value)
    return [
        _node_time(name, about[name], median(values), origins, backward) for name, values in seconds.items()
    ]


def _own_times(events: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """A node with a graph inside has the time that its nodes do not take."""
    own = {id(e): float(e["dur"]) for e in events}
    open_: list[Mapping[str, Any]] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= event["ts"]:
            open_.pop()
        if open_ and holds_graphs("", str(open_[-1]["args"].get("op_name"))):
            own[id(open_[-1])] -= event["dur"]
        open_.append(event)
    return [(e, max(0.0, own[id(e)])) for e in events]


def _node_time(
    name: str,
    about: Mapping[str, Any],
    seconds: float,
    origins: Mapping[str, ir.Node],
    backward: set[ir.Node],
) -> NodeTime:
    node = origins.get(name)
    marks = node.metadata_props if node is not None else {}
    ran = str(about.get("op_name", ""))
    same = node is not None and node.op_type == ran
    return NodeTime(
        name=str(node.name) if node is not None else name,
        op=operator(node.domain, node.op_type) if node is not None and same else ran,
        module=marks.get(MODULE_KEY, ""),
        made_by=marks.get(PASS_KEY, "") if same else "",
        backward=node in backward,
        seconds=seconds,
        bytes=int(about.get("output_size", 0)),
    )
