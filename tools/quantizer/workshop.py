"""The float model, made ready once, and what is known of it: where every trial begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuseline.engine.calibration import CalibrationTable, calibrate
from fuseline.engine.calibration.moments import save_moments, second_moments
from fuseline.engine.errors import FuselineError
from fuseline.engine.manager import Result
from fuseline.engine.model import Model
from fuseline.engine.observers import DumpDiffs
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.quantizer.data import Batches
from fuseline.tools.quantizer.plan import Plan

__all__ = ["Progress", "Workshop"]

Progress = Callable[[str, int, int], None]


@dataclass
class Workshop:
    """Prepares a model for a plan, calibrates it, and quantizes copies of it.

    The folder keeps the calibration tables; a table that is there is used, not made again.
    """

    source: Model
    folder: Path
    calibration: Batches | None
    progress: Progress | None = None
    table: Path | None = None
    fallback: Batches | None = None

    def __post_init__(self) -> None:
        self._prepared: dict[tuple[Any, ...], Model] = {}

    def forget(self) -> None:
        """Remove what an earlier run of another model or configuration has left in the folder."""
        for stale in (*self.folder.glob("calibration-*.json"), *self.folder.glob("sensitivity-*.json")):
            stale.unlink()
        for name in ("channels.json", "moments.npz"):
            (self.folder / name).unlink(missing_ok=True)

    def prepared(self, plan: Plan) -> Model:
        """The float model behind the pipeline that the plan wants first, smoothed if it wants that too."""
        smooth = plan.config.activations.smooth if plan.mode == "static" else None
        key = (plan.preparation, plan.disabled, smooth)
        if key not in self._prepared:
            disabled = [d for d in plan.disabled if d in _names(plan.preparation)]
            made = Pipeline.resolve(plan.preparation).run(self.source, disable=disabled).model
            if smooth is not None:
                channels = self._calibrated(plan, made, "channels.json", channels=True)
                smoothing = plan.smoothing(str(channels))
                assert smoothing is not None
                made = smoothing.run(made).model
            self._prepared[key] = made
        return self._prepared[key]

    def table_of(self, plan: Plan) -> str:
        """The calibration table of a static plan, or the moments of one for weights, made on first use."""
        if plan.needs_moments:
            return str(self._moments(plan))
        if plan.mode != "static":
            return ""
        name = f"calibration-{plan.format}{'-outputs' if plan.config.activations.outputs else ''}"
        smooth = plan.config.activations.smooth
        name += f"-smooth{smooth}" if smooth is not None else ""
        return str(self._calibrated(plan, self.prepared(plan), f"{name}.json"))

    def quantized(self, plan: Plan) -> Result:
        """The model that a plan makes, with the record of every pass."""
        return plan.pipeline(self.table_of(plan)).run(self.prepared(plan))

    def dump(self, plan: Plan, folder: Path) -> None:
        """Show what every pass does on the way from the source to what a plan makes, as one report."""
        disabled = [d for d in plan.disabled if d in _names(plan.preparation)]
        stages = [*Pipeline.resolve(plan.preparation).stages]
        if plan.mode == "static" and plan.config.activations.smooth is not None:
            smoothing = plan.smoothing(str(self.folder / "channels.json"))
            stages += smoothing.stages if smoothing is not None else ()
        whole = Pipeline.of(*stages, *plan.pipeline(self.table_of(plan)).stages)
        whole.run(self.source, [DumpDiffs(folder, title="quantization")], disable=disabled)

    def _calibrated(self, plan: Plan, model: Model, name: str, *, channels: bool = False) -> Path:
        path = self.table if self.table is not None and not channels else self.folder / name
        values = plan.to_calibrate(model)
        if path.exists():
            self._check(CalibrationTable.load(path), values, path)
            return path
        if self.calibration is None:
            raise FuselineError(
                "static quantization needs calibration data",
                hint="give calibration: data (an .npz of inputs), or use mode: dynamic",
            )
        total = len(self.calibration)

        def tell(done: int) -> None:
            if self.progress is not None:
                self.progress("calibrating", done, total)

        table = calibrate(
            model, self.calibration.inputs(), values, channels=values if channels else (), progress=tell
        )
        table.save(path)
        return path

    def _moments(self, plan: Plan) -> Path:
        path = self.folder / "moments.npz"
        if not path.exists():
            if self.calibration is None:
                raise FuselineError(
                    f"rounding by {plan.config.weights.method} needs calibration data",
                    hint="give calibration: data (an .npz of inputs), or use method: rtn",
                )
            model = self.prepared(plan)
            save_moments(path, second_moments(model, self.calibration.inputs, plan.widths(model)))
        return path

    def _check(self, table: CalibrationTable, values: list[str], path: Path) -> None:
        if values and not any(v in table for v in values):
            raise FuselineError(
                f"the calibration table {path} knows none of the model's {len(values)} values",
                hint="it is of another model or another pipeline; remove it to calibrate again",
            )


def _names(pipeline: str) -> set[str]:
    return {p.name for p in Pipeline.resolve(pipeline).passes()}
