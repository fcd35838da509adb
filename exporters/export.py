"""`export`: anything that can be exported, to a Model that is checked against torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
from torch import nn

from fuseline.engine.facts import DeclaredInput, Facts, Interface, Origin, Training
from fuseline.engine.model import Model
from fuseline.engine.properties import Property
from fuseline.exporters.conditions import conditions_of, only_excludes_one
from fuseline.exporters.context import Clock, Progress, attention_set
from fuseline.exporters.errors import ExportError, ExportMismatch
from fuseline.exporters.mode import SWITCH, install_switch
from fuseline.exporters.names import map_parameters, name_axes
from fuseline.exporters.plan import Plan
from fuseline.exporters.planning import Dynamic, make_plan
from fuseline.exporters.provenance import record_provenance
from fuseline.exporters.sources import Source, resolve
from fuseline.exporters.tracing import trace, translate
from fuseline.exporters.verify import CheckReport
from fuseline.exporters.verify import check as run_check
from fuseline.exporters.wrapper import UPDATED, Loss

__all__ = ["OPSETS", "export", "export_plan"]

#: What ONNX Runtime 1.19 runs and torch can emit.
OPSETS = range(18, 22)


def export(
    source: Any,
    *,
    task: str | None = None,
    train: bool = False,
    opset: int = 18,
    attention: str | None = None,
    dynamic: Dynamic = True,
    example_inputs: Any = None,
    loss: Loss | Literal[False] | None = None,
    arguments: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    seed: int = 0,
    check: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Export a model to ONNX, with its loss when `train` is set, and check it against torch.

    `source` is a transformers model or config, a torch module (with `example_inputs`), a model folder, a
    config.json, "module:factory", an .onnx file, or a `Source` that was resolved before. `progress` hears the
    name of each phase as it begins.

    Inputs and outputs are the task's or, with `example_inputs`, those of that call: its `arguments` are what
    the forward takes besides tensors, and `outputs=()` stands for all that it returns. `loss=False` trains a
    model whose loss is computed outside.

    The weights of the result share their memory with the torch model. What the export did, how long each
    phase took and how far the graph is from torch stands in the result's `facts`.
    """
    if opset not in OPSETS:
        raise ExportError(f"opset {opset} is not supported", hint=f"choose {OPSETS[0]} to {OPSETS[-1]}")
    if isinstance(source, (str, Path)) and str(source).endswith(".onnx"):
        return _from_file(Path(source), train)
    clock = Clock(progress)
    with clock.phase("load"):
        known = isinstance(source, Source)
        resolved = source if known else resolve(source, task=task, attention=attention, seed=seed)
    with attention_set(resolved, attention):
        plan = make_plan(
            resolved,
            train=train,
            dynamic=dynamic,
            example_inputs=example_inputs,
            loss=loss,
            arguments=arguments,
            outputs=outputs,
        )
        return export_plan(plan, resolved, opset=opset, check=check, clock=clock)


def export_plan(plan: Plan, source: Source, *, opset: int, check: bool, clock: Clock) -> Model:
    """Trace, translate, name and check what a plan describes."""
    graph, known = _graph_of(plan, opset, clock)
    with clock.phase("name"):
        model = _finish(graph, plan, source)
        model.facts.interface = replace(model.facts.interface, **known)
    if check:
        with clock.phase("check"):
            _check(model, plan, source.label)
    model.facts.origin = replace(model.facts.origin, timings=dict(clock.seconds))
    return model


def _graph_of(plan: Plan, opset: int, clock: Clock) -> tuple[ir.Model, dict[str, Any]]:
    """The translated graph, and what tracing found out about its interface."""
    example = plan.example()
    with plan.tracing():
        with clock.phase("trace"):
            program = trace(plan.wrapper, plan.inputs, example, train=plan.train)
        known = {"conditions": conditions_of(program, plan.inputs), "numbers": plan.wrapper.numbers}
        with clock.phase("translate"):
            names = [item.name for item in plan.inputs]
            return translate(program, plan.wrapper, names, plan.wrapper.output_names, opset), known


def _finish(graph: ir.Model, plan: Plan, source: Source) -> Model:
    """Names, provenance, the training switch and the facts."""
    prefix = "model."
    outputs = plan.wrapper.output_names
    updates = {name: name.removesuffix(UPDATED) for name in outputs if name.endswith(UPDATED)}
    parameters = map_parameters(graph, plan.model, prefix=prefix, written=updates.values())
    record_provenance(graph, prefix=prefix, root=source.label)
    name_axes(graph, plan.inputs)
    switched = install_switch(graph)
    graph.producer_name = "fuseline"
    graph.ir_version = min(graph.ir_version, 10)
    model = Model(graph, parameters, _facts(plan, source))
    training = model.facts.training
    model.facts.training = replace(
        training, updates=updates, switch=SWITCH if plan.train and switched else None
    )
    model.name_everything()
    return model


def _facts(plan: Plan, source: Source) -> Facts:
    config = getattr(plan.model, "config", None)
    origin = Origin(
        task=source.task.name if source.task else None,
        family=getattr(config, "model_type", None),
        architecture=source.label,
        attention=getattr(config, "_attn_implementation", None),
        notes=(*source.notes, *plan.notes()),
    )
    interface = Interface(
        inputs={i.name: DeclaredInput(tuple(i.axes), i.default) for i in plan.inputs},
        dynamic_axes={i.name: _json_keys(i.dynamic) for i in plan.inputs if i.dynamic},
        labels=tuple(i.name for i in source.task.labels) if plan.train and source.task else (),
        outputs=tuple(name for name in plan.wrapper.output_names if not name.endswith(UPDATED)),
    )
    if not plan.train:
        return Facts(origin, interface, Training(mode="evaluation"))
    loss = "loss" if "loss" in plan.wrapper.output_names else None
    training = Training(mode="training", loss=loss, padding_rows=_padding_rows(plan.model))
    return Facts(origin, interface, training, established=frozenset([Property.TRAINING]))


def _padding_rows(model: nn.Module) -> dict[str, int]:
    """Embedding table → the row that look-ups do not train; Gather has no word for it."""
    tables = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    return {f"{n}.weight": m.padding_idx for n, m in tables.items() if m.padding_idx is not None}


def _json_keys(axes: dict[int, str]) -> dict[str, str]:
    """Facts travel as JSON, whose keys are text."""
    return {str(axis): name for axis, name in axes.items()}


def _check(model: Model, plan: Plan, label: str) -> None:
    report = run_check(model, plan)
    model.facts.origin = replace(model.facts.origin, check=tuple(report.to_json()))
    if report.ok:
        _drop_what_was_tried(model, report)
        return
    worst = report.worst
    raise ExportMismatch(
        f"{label} was exported, but differs from torch: {worst.output} by {worst.difference:.1e} "
        f"(allowed {worst.tolerance:.0e}) at {worst.shape}",
        hint="export with check=False to look at the graph",
    )


def _drop_what_was_tried(model: Model, report: CheckReport) -> None:
    """A condition that leaves out size 1 alone says nothing where the graph was right at size 1."""
    tried = {part for row in report.checks for part in row.shape.split(", ")}
    left = tuple(c for c in model.facts.interface.conditions if f"{only_excludes_one(c)}=1" not in tried)
    model.facts.interface = replace(model.facts.interface, conditions=left)


def _from_file(path: Path, train: bool) -> Model:
    """An ONNX file needs no export; a training graph must already have a loss."""
    model = Model.load(path)
    if train and not model.facts.training.loss:
        if "loss" not in {o.name for o in model.graph.outputs}:
            raise ExportError(
                f"{path} has no output called 'loss'", hint="export the torch model with train=True instead"
            )
        model.facts.training = replace(model.facts.training, loss="loss")
        model.establish(Property.TRAINING)
    return model
