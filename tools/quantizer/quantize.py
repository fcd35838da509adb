"""`quantize`: one call from a float model to a quantized one, with or without an accuracy to keep."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuseline.engine.diff.content import is_tensor
from fuseline.engine.errors import FuselineError
from fuseline.engine.files import weight_bytes
from fuseline.engine.model import Model
from fuseline.engine.quantization.products import excluded_by
from fuseline.tools.quantizer.config import Accuracy, Config, load_config
from fuseline.tools.quantizer.data import Batches, batches_of, made_up
from fuseline.tools.quantizer.journal import Journal, Trial, key_of
from fuseline.tools.quantizer.left import Left, left_by_training, left_in_float
from fuseline.tools.quantizer.metrics import Metric, metric_of, predictor
from fuseline.tools.quantizer.plan import Plan, make_plan
from fuseline.tools.quantizer.tuner import AwareTrainer, Tuner
from fuseline.tools.quantizer.workshop import Progress, Workshop

__all__ = ["Outcome", "quantize"]

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """The quantized model and what is to be said about it.

    `met` says whether the criterion is, and is None where none was set.
    """

    model: Model
    target: str
    left: Left
    size_ratio: float
    met: bool | None = None
    float_score: float | None = None
    score: float | None = None
    trials: tuple[Trial, ...] = ()


def quantize(
    model: Model | str | Path,
    output: str | Path | None = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    calibration: Any = None,
    evaluation: Any = None,
    metric: Metric | None = None,
    trainer: AwareTrainer | None = None,
    dump: str | Path | None = None,
    progress: Progress | None = None,
    tell: Tell = lambda line: None,
) -> Outcome:
    """Quantize a model and write it to `output`.

    `config` is a `Config`, plain data, a YAML file, a folder or a Hub repository that holds one.
    `calibration` and `evaluation` are batches (dictionaries of inputs, with `labels` or as pairs with
    labels); they stand in for the files that the configuration names. `metric` takes a function from inputs
    to outputs and returns a number; higher is better. `trainer` is a `Trainer(…, quantize=…)` of the same
    model for the last rung: it is asked to train when nothing else keeps all products in integers. `dump`
    is a folder for the diff of every pass and the report of all of them.

    With `accuracy` in the configuration, or a metric, the ladder is climbed until the criterion is met.
    """
    settings = _config(config)
    if metric is not None and settings.accuracy is None:
        settings = replace(settings, accuracy=Accuracy())
    loaded = model if isinstance(model, Model) else Model.load(model)
    _check_inference(loaded)
    if settings.mode == "auto" and settings.accuracy is None:
        settings = replace(settings, accuracy=Accuracy())
    data = _calibration(settings, loaded, calibration)
    with ExitStack() as stack:
        folder = _folder(settings, output, stack)
        table = settings.calibration.table
        if data is not None and table and Path(table).exists() and settings.mode in ("static", "auto"):
            tell(f"ranges are those of {table}; remove it to take them from the calibration data again")
        workshop = Workshop(loaded, folder, data, progress, Path(table) if table else None)
        if settings.accuracy is None:
            return _once(settings, workshop, output, dump, tell)
        if output is None:
            raise FuselineError("tuning keeps its best model on disk", hint="say where: output=…")
        judged = _evaluation(settings, loaded, evaluation, data, tell)
        return _tuned(settings, workshop, Path(output), judged, metric, trainer, dump, tell)


def _once(
    config: Config, workshop: Workshop, output: str | Path | None, dump: str | Path | None, tell: Tell
) -> Outcome:
    plan = make_plan(config)
    result = workshop.quantized(plan)
    _tell_unnamed(workshop, plan, tell)
    if dump is not None:
        workshop.dump(plan, Path(dump))
    if output is not None:
        result.model.save(output)
    return _outcome(workshop, plan, result.model, left_in_float(result))


def _tuned(
    config: Config,
    workshop: Workshop,
    output: Path,
    judged: Batches,
    metric: Metric | None,
    trainer: AwareTrainer | None,
    dump: str | Path | None,
    tell: Tell,
) -> Outcome:
    assert config.accuracy is not None
    workshop.fallback = judged
    float_model = predictor(workshop.source)
    plain = {k: v for k, v in config.to_dict().items() if k != "budget"}
    key = key_of(workshop.source, plain, workshop.calibration, judged)
    journal = Journal(workshop.folder / "journal.jsonl", key)
    if journal.resumed:
        tell(f"resuming: {len(journal.trials)} trials are done")
    else:
        workshop.forget()
    chosen = metric or metric_of(config.accuracy, judged, float_model)
    tuner = Tuner(config, workshop, chosen, journal, output, float_model, trainer, tell)
    met = tuner.run()
    best = journal.best()
    assert best is not None
    plan = tuner.plan_of(best)
    if plan is None:
        if dump is not None:
            tell("the best model was trained: its passes are in the trainer's dump_dir, not here")
        model = Model.load(output)
        made = _outcome(workshop, make_plan(config), model, left_by_training(model))
    else:
        result = workshop.quantized(plan)
        _tell_unnamed(workshop, plan, tell)
        if dump is not None:
            workshop.dump(plan, Path(dump))
        made = _outcome(workshop, plan, result.model, left_in_float(result))
    return replace(
        made, met=met, float_score=journal.float_score, score=best.score, trials=tuple(journal.trials)
    )


def _tell_unnamed(workshop: Workshop, plan: Plan, tell: Tell) -> None:
    """What was to be excluded and is not there, neither in the model as it came nor as it was made ready."""
    nodes = [n for m in (workshop.source, workshop.prepared(plan)) for n in m.nodes()]
    for pattern in plan.config.exclude:
        if not any(excluded_by(node, (pattern,)) for node in nodes):
            tell(f"exclude: {pattern!r} names no node and no module of the model")


def _outcome(workshop: Workshop, plan: Plan, model: Model, left: Left) -> Outcome:
    ratio = _stored(model) / max(1, _stored(workshop.source))
    return Outcome(model, f"{plan.target.name}: {plan.target.why}", left, ratio)


def _stored(model: Model) -> int:
    """The size of all constants, be they initializers or nodes."""
    tensors = (
        a.value for node in model.nodes() if node.op_type == "Constant" for a in node.attributes.values()
    )
    return weight_bytes(model.ir) + sum(t.nbytes for t in tensors if is_tensor(t))


def _config(given: Config | Mapping[str, Any] | str | Path | None) -> Config:
    if given is None:
        return Config()
    if isinstance(given, Config):
        return given
    return Config.from_dict(given) if isinstance(given, Mapping) else load_config(given)


def _check_inference(model: Model) -> None:
    if model.training:
        raise FuselineError(
            "the model is a training graph, and only inference graphs are quantized",
            hint="export it without a loss",
        )


def _folder(config: Config, output: str | Path | None, stack: ExitStack) -> Path:
    """Where tables and the journal are kept: beside the output when tuning, else until the call ends."""
    if output is not None and config.accuracy is not None:
        return Path(f"{output}.tuning")
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuseline-quantize-")))


def _calibration(config: Config, model: Model, given: Any) -> Batches | None:
    source = given if given is not None else config.calibration.data
    if source is None:
        return None
    wanted = config.calibration
    return batches_of(source, model, batch_size=wanted.batch_size, samples=wanted.samples)


def _evaluation(config: Config, model: Model, given: Any, calibration: Batches | None, tell: Tell) -> Batches:
    assert config.accuracy is not None
    source = given if given is not None else config.accuracy.data
    if source is not None:
        return batches_of(source, model, batch_size=max(16, config.calibration.batch_size))
    if calibration is not None:
        return calibration
    tell("no data was given: the models are compared on random inputs, which says little")
    return made_up(model)
