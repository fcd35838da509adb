"""From a configuration to pipelines: what runs before, what quantizes, what has to be calibrated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from fuseline.engine.constants import is_constant
from fuseline.engine.errors import FuselineError, did_you_mean
from fuseline.engine.model import Model
from fuseline.engine.operators import records
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.quantization.products import Product, family_of, product_of, weighted
from fuseline.engine.quantization.targets import Target, target
from fuseline.passes.cleanup.deduplicate_initializers import DeduplicateInitializers
from fuseline.passes.cleanup.merge_casts import MergeCasts
from fuseline.passes.cleanup.remove_unused import RemoveUnused
from fuseline.passes.quantization.convert_precision import ConvertPrecision
from fuseline.passes.quantization.quantize_dynamic import QuantizeDynamic
from fuseline.passes.quantization.quantize_embeddings import QuantizeEmbeddings
from fuseline.passes.quantization.quantize_qdq import EVERYTHING, QuantizeQdq
from fuseline.passes.quantization.quantize_static import QuantizeStatic
from fuseline.passes.quantization.quantize_weights import QuantizeWeights
from fuseline.passes.quantization.scale_salient import ScaleSalient
from fuseline.passes.quantization.smooth_activations import SmoothActivations
from fuseline.tools.quantizer.config import Config

__all__ = ["Plan", "make_plan"]

#: What the modes write that make no integer products.
_ONE_FORM = {
    "weight-only": "com.microsoft.MatMulNBits for 4 bits, DequantizeLinear for 8",
    "float16": "the operators as they are, in 16 bits",
    "bfloat16": "the operators as they are, in 16 bits",
}


@dataclass(frozen=True)
class Plan:
    """A configuration with the target's choices filled in."""

    config: Config
    target: Target
    mode: str
    format: str
    operators: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    dynamic_nodes: tuple[str, ...] = ()
    """Nodes that a static plan leaves to dynamic quantization."""

    @property
    def preparation(self) -> str:
        """The pipeline that runs before; at the least it finds out types and shapes."""
        chosen = self.config.pipeline or ("inference" if self.format == "fused" else "quantize-prepare")
        return "infer-shapes" if chosen == "skip" else chosen

    @property
    def disabled(self) -> tuple[str, ...]:
        """Passes of the preparation that would hide what is to be quantized."""
        return ("fuse-packed-attention",) if self.mode == "weight-only" else ()

    def pipeline(self, table: str) -> Pipeline:
        """The passes that quantize; `table` is the calibration table, or the file of moments."""
        if self.mode in ("float16", "bfloat16"):
            return Pipeline.of(self._float(), MergeCasts(), RemoveUnused())
        steps: list[Pass] = []
        if self.mode == "weight-only":
            steps.extend(self._weight_only(table))
        elif self.format == "qdq":
            steps.append(QuantizeQdq(**self._qdq_options(table), exclude=self.exclude))
        elif self.mode == "dynamic":
            steps.append(QuantizeDynamic(exclude=self.exclude, **self._integer_options()))
        else:
            steps.append(self._static(table))
            if self.dynamic_nodes:
                options = self._integer_options()
                steps.append(QuantizeDynamic(exclude=self.exclude, only=self.dynamic_nodes, **options))
        if "Gather" in self.operators and not self.config.activations.outputs:
            # Behind the products: the table of ranges knows values by the names they had when it was made.
            steps.append(QuantizeEmbeddings(exclude=self.exclude, smallest=self.config.weights.smallest))
        return Pipeline.of(*steps, RemoveUnused(), DeduplicateInitializers())

    def smoothing(self, table: str) -> Pipeline | None:
        """The pass that evens channels out before ranges are taken, if that was asked for."""
        strength = self.config.activations.smooth
        if strength is None or self.mode != "static":
            return None
        return Pipeline.of(
            SmoothActivations(strength=strength, table=table, exclude=self.exclude), RemoveUnused()
        )

    def switched(self, table: str) -> Pipeline:
        """The pass that makes every site one that can be switched on alone."""
        return Pipeline.of(QuantizeQdq(**self._qdq_options(table), switches=True))

    def _qdq_options(self, table: str) -> dict[str, Any]:
        activations, dynamic = self.config.activations, self.mode == "dynamic"
        given: dict[str, Any] = {
            "operators": self.operators if activations.outputs else self._products(),
            "outputs": activations.outputs,
            "dynamic": dynamic,
            "smallest": self.config.weights.smallest,
            **self._weights(),
        }
        return given | ({} if dynamic else {"table": table, **self._activations()})

    def without(self, nodes: Iterable[str], *, dynamic: bool = False) -> Plan:
        """The plan with more nodes in float, or (`dynamic`) quantized by the range of each run."""
        chosen = tuple(nodes)
        if dynamic:
            return replace(self, exclude=self.exclude, dynamic_nodes=chosen)
        return replace(self, exclude=(*self.exclude, *chosen))

    @property
    def needs_moments(self) -> bool:
        """Whether weights are rounded with regard to the data."""
        return self.mode == "weight-only" and self.config.weights.method != "rtn"

    def widths(self, model: Model) -> dict[str, int]:
        """The activations of products in the main graph, with their number of channels."""
        found: dict[str, int] = {}
        for node in model.graph:
            product = product_of(model, node)
            if isinstance(product, Product) and product.kind == "matrix" and product.activation.name:
                found[product.activation.name] = len(product.matrix())
        return found

    def to_calibrate(self, model: Model) -> list[str]:
        """The values of the main graph whose ranges static quantization asks for."""
        if self.mode != "static":
            return []
        found: dict[str, None] = {}
        for node in model.graph:
            if family_of(node) not in self.operators:
                continue
            product = weighted(node) is not None
            inputs = node.inputs[:1] if product and not self.config.activations.outputs else node.inputs
            outputs = (
                node.outputs[:1] if self.config.activations.outputs or node.op_type.endswith("Conv") else ()
            )
            for value in (*inputs, *outputs):
                if value is None or value.dtype is None or not value.dtype.is_floating_point():
                    continue
                if not is_constant(model, value) and value.name:
                    found[value.name] = None
        return list(found)

    def _products(self) -> tuple[str, ...]:
        families = {o.quantizable.family for o in records() if o.quantizable is not None}
        return tuple(o for o in self.operators if o in families)

    def _float(self) -> Pass:
        chosen: Literal["float16", "bfloat16"] = "float16" if self.mode == "float16" else "bfloat16"
        return ConvertPrecision(to=chosen, allow=self.config.operators, exclude=self.exclude)

    def _weight_only(self, moments: str) -> list[Pass]:
        weights = self.config.weights
        steps: list[Pass] = []
        if weights.method == "awq":
            steps.append(
                ScaleSalient(
                    moments=moments,
                    block=weights.block,
                    symmetric=weights.symmetric_blocks,
                    exclude=self.exclude,
                )
            )
        method: Literal["rtn", "gptq"] = "gptq" if weights.method == "gptq" else "rtn"
        steps.append(
            QuantizeWeights(
                bits=weights.bits,
                block=weights.block,
                method=method,
                moments=moments if method == "gptq" else "",
                accuracy_level=weights.accuracy_level,
                smallest=weights.smallest,
                symmetric=weights.symmetric_blocks,
                exclude=self.exclude,
            )
        )
        return steps

    def _static(self, table: str) -> Pass:
        exclude = (*self.exclude, *self.dynamic_nodes)
        return QuantizeStatic(exclude=exclude, table=table, **self._integer_options(), **self._activations())

    def _integer_options(self) -> dict[str, Any]:
        smallest = self.config.weights.smallest
        return {"operators": self._products(), "format": self.format, "smallest": smallest, **self._weights()}

    def _weights(self) -> dict[str, Any]:
        given, preset = self.config.weights, self.target
        return {
            "weights": given.type or preset.weights,
            "per_channel": preset.per_channel if given.per_channel is None else given.per_channel,
            "symmetric": given.symmetric,
            "reduce_range": preset.reduce_range if given.reduce_range is None else given.reduce_range,
        }

    def _activations(self) -> dict[str, Any]:
        given, preset = self.config.activations, self.target
        symmetric = preset.symmetric_activations if given.symmetric is None else given.symmetric
        return {
            "activations": given.type or preset.activations,
            "symmetric_activations": symmetric,
            "observer": given.observer,
            "percentile": given.percentile,
        }


def make_plan(config: Config, mode: str | None = None) -> Plan:
    """The plan of a configuration; `mode` stands in for the configuration's own."""
    preset = target(config.target)
    mode = mode or config.mode
    form = config.format or ("qdq" if preset.qdq or config.activations.outputs else "fused")
    if mode == "dynamic" and not preset.dynamic:
        raise FuselineError(
            f"target {preset.name!r} has no dynamic quantization",
            hint="use mode: static with calibration data",
        )
    if config.activations.outputs and form != "qdq":
        raise FuselineError("activations: outputs needs format: qdq")
    if config.format not in (None, "fused") and mode in _ONE_FORM:
        raise FuselineError(
            f"mode {mode!r} has one form, which is not {config.format!r}: {_ONE_FORM[mode]}",
            hint="leave `format` out",
        )
    operators = config.operators or ("MatMul", "Gemm", "Attention", "Gather")
    if mode == "static" and not config.operators:
        operators = (*operators, "Conv")
    if "everything" in operators:
        operators = EVERYTHING
    elif mode not in ("float16", "bfloat16"):
        _check_operators(operators)
    return Plan(config, preset, mode, form, operators, config.exclude)


def _check_operators(given: Iterable[str]) -> None:
    known = {*EVERYTHING, *(o.quantizable.family for o in records() if o.quantizable is not None)}
    for name in given:
        if name not in known:
            raise FuselineError(
                f"there is no way to quantize an operator {name!r}",
                hint=did_you_mean(name, known) or f"there is one for {', '.join(sorted(known))}",
            )
