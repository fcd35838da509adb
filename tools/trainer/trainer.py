"""`Trainer` and `Seq2SeqTrainer`: the stock ones, with the model's forward and backward on ONNX Runtime."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Seq2SeqTrainer as StockSeq2SeqTrainer
from transformers import Trainer as StockTrainer
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.trainer_utils import align_special_tokens, rotate_checkpoints

from fuseline import kernels
from fuseline.engine.errors import FuselineError
from fuseline.engine.pipeline import Pipeline
from fuseline.tools.trainer.arguments import ADAMW
from fuseline.tools.trainer.bridge import Bridge, attach
from fuseline.tools.trainer.cache import CompileCache
from fuseline.tools.trainer.checkpoints import CheckpointMissing, is_complete, last_complete, marked
from fuseline.tools.trainer.compiler import Compiler, Settings
from fuseline.tools.trainer.precision import Precision
from fuseline.tools.trainer.refusals import Fallback
from fuseline.tools.trainer.report import Report
from fuseline.tools.trainer.sharded import consolidate
from fuseline.tools.trainer.whole_step import WholeStep, loss_obstacles, obstacles

__all__ = ["Seq2SeqTrainer", "Trainer"]

logger = logging.getLogger(__name__)

#: From the graph that was trained to one of integer products.
_TO_INTEGERS = (
    "freeze-parameters,lift-constants,resolve-cast-like,infer-shapes,eliminate-noop-cast,eliminate-identity,"
    "convert-fake-quantize,inference"
)
_SCALE_BATCHES = 8


class _OnnxRuntime:
    """What both trainers add to the stock ones."""

    model: Any
    args: Any
    accelerator: Any
    optimizer: Any
    optimizer_cls_and_kwargs: Any

    def __init__(
        self,
        *args: Any,
        pipeline: str = "training",
        plugins: Sequence[str | os.PathLike[str]] = (),
        dump_dir: str | os.PathLike[str] | None = None,
        fallback: Fallback = "torch",
        whole_step: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        check: bool = True,
        inference_with_ort: bool | None = None,
        quantize: int | Mapping[str, Any] | None = None,
        memory_budget: str | float | None = None,
        **kwargs: Any,
    ) -> None:
        """The stock arguments, and:

        - pipeline: a ready pipeline, a YAML file or pipeline text; plugins: Python files with your passes
        - dump_dir: where each pass writes its diff
        - fallback: what cannot be exported or differentiated runs in "torch" with a warning, or is an "error"
        - whole_step: the optimizer runs inside the graph
        - cache_dir: where compiled graphs are kept ("off": nowhere)
        - check: hold loss and gradients against torch's on the first batch, before a graph trains
        - inference_with_ort: a word of ORTTrainer; evaluation always runs on ONNX Runtime
        - quantize: the linear layers are trained on grids of so many bits, with learned scales; `save_onnx`
          then writes an integer graph. {"bits": 8, "exclude": […]} leaves layers out by name
        - memory_budget: "2GB", or a fraction of what a step takes without a plan; values are computed again
          rather than kept as far as it takes, and a batch for which no plan fits is an error before it runs
        """
        self._choices: dict[str, Any] = {
            "pipeline": pipeline,
            "plugins": tuple(Path(p) for p in plugins),
            "dump_dir": Path(dump_dir) if dump_dir is not None else None,
            "cache": CompileCache.at(cache_dir),
            "check": check,
            "aware": quantize is not None,
            "memory_budget": memory_budget,
        }
        _note_inference(inference_with_ort)
        if fallback not in ("torch", "error"):
            raise FuselineError(f"fallback is 'torch' or 'error', not {fallback!r}")
        self._fallback: Fallback = fallback
        self._compiler: Compiler | None = None
        super().__init__(*args, **kwargs)
        if quantize is not None:
            self._make_aware({"bits": quantize} if isinstance(quantize, int) else dict(quantize))
        self.bridge = self._attach(self.model)
        self._whole_step: WholeStep | None = None
        if whole_step:
            self._whole_step = WholeStep(self)
            if self.optimizer is not None or self.optimizer_cls_and_kwargs is not None:
                self.bridge.drop_native("an optimizer of your own was given")
            elif reasons := obstacles(self):
                self.bridge.drop_native("; ".join(reasons))

    # -- what the user may look at

    @property
    def compiler(self) -> Compiler:
        """The graphs and how they came about."""
        if self._compiler is None:
            self._compiler = Compiler(Settings(precision=self._precision(), **self._choices))
        return self._compiler

    def compile(self, batch: Mapping[str, Any]) -> None:
        """Make the graphs for batches like this one now, of training and of evaluation."""
        tokenizer = self.processing_class  # type: ignore[attr-defined]
        if isinstance(tokenizer, (PreTrainedTokenizerBase, ProcessorMixin)) and hasattr(self.model, "config"):
            # As `train` begins; the graph of other settings would be another model's.
            align_special_tokens(self.model, tokenizer)  # type: ignore[no-untyped-call]
        with self._reading_the_loss():
            self.bridge.compile(batch, self._whole_step.variant if self._whole_step is not None else None)

    def report(self, batches: Sequence[Mapping[str, Any]] = ()) -> Report:
        """What ran on ONNX Runtime, what in torch and why; with batches, also how fast against torch."""
        found = self.bridge.report()
        if not batches:
            return found
        return replace(found, speed=self.bridge.speed([self._prepare_inputs(dict(b)) for b in batches]))  # type: ignore[attr-defined]

    def save_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the inference graph with the trained weights; it runs on any onnxruntime."""
        target = Path(path)
        model = self.bridge.inference()
        if self._choices["aware"]:
            model = Pipeline.parse(_TO_INTEGERS).run(model).model
        model.save(target)
        return target

    def _make_aware(self, settings: dict[str, Any]) -> None:
        """Scales begin with what the layers see on a few batches of the training data."""
        from fuseline.tools.quantizer.aware import make_aware

        data, size = self.train_dataset, self.args.train_batch_size  # type: ignore[attr-defined]
        if data is None:
            raise FuselineError(
                "training on grids takes its first scales from the training data: there is none"
            )
        labels = set(self.label_names or ("labels",))  # type: ignore[attr-defined]
        starts = range(0, min(len(data), _SCALE_BATCHES * size), size)
        made = (self.data_collator([data[i] for i in range(s, min(s + size, len(data)))]) for s in starts)  # type: ignore[attr-defined]
        fed = ({k: v for k, v in batch.items() if k not in labels} for batch in made)
        make_aware(self.model, fed, **settings)

    # -- where the stock trainer meets the graph

    def _attach(self, model: nn.Module) -> Bridge:
        return attach(model, self.compiler, self._fallback)

    def _follow_model(self) -> None:
        """Whoever gives the trainer another model means that one."""
        if self.model is not None and not self.bridge.stands_for(self.model):
            self.bridge = self._attach(self.model)
        self.bridge.refresh()

    def call_model_init(self, trial: Any = None) -> nn.Module:
        model: nn.Module = super().call_model_init(trial)  # type: ignore[misc]
        self.bridge = self._attach(model)
        return model

    def _precision(self) -> Precision:
        if self.args.fp16:
            return "fp16"
        return "bf16" if self.args.bf16 else "fp32"

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        """Precision is a property of the graph, and the graph is compiled: accelerate must do neither."""
        built: dict[str, Any] = super()._build_accelerator_args(**kwargs)  # type: ignore[misc]
        built.pop("dynamo_plugin", None)
        if self.args.torch_compile:
            logger.warning("torch_compile=True: the model is compiled for ONNX Runtime instead")
        return {**built, "mixed_precision": "no", "dynamo_backend": "no"}

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        precision = self._precision()
        if precision == "fp32":
            return
        if self.is_deepspeed_enabled:  # type: ignore[attr-defined]
            raise FuselineError(
                f"{precision} with DeepSpeed would turn the weights themselves into half precision",
                hint="leave bf16 and fp16 out of both configurations; weights stay in fp32",
            )
        if precision == "bf16":
            if not kernels.multiplies_bf16():
                logger.warning(
                    "bf16: this processor has no instruction for products in it (AVX512-BF16), so everything "
                    "is computed in fp32; with mixed-precision in the pipeline the products are rounded all "
                    "the same"
                )
            return
        self.accelerator.scaler = torch.amp.GradScaler("cpu")
        logger.warning(
            "fp16: there are no such kernels for this processor, so matrix products are rounded to fp16 and "
            "computed in fp32: the numerics of mixed precision without its speed; weights stay in fp32"
        )

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        if self._whole_step is not None:
            model.train()
            batch = self._prepare_inputs(inputs)  # type: ignore[attr-defined]
            loss = self._whole_step.run(batch, num_items_in_batch, self.accelerator.sync_gradients)
            if loss is not None:
                return loss
        with self._reading_the_loss():
            stepped: Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        return stepped

    def _reading_the_loss(self) -> AbstractContextManager[None]:
        """The stock training step reads nothing else of the model, so that nothing else is computed."""
        return self.bridge.loss_alone(not loss_obstacles(self))

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        if self._whole_step is None or self.bridge.native_refused is not None or self.optimizer is not None:
            return super().create_optimizer(model)  # type: ignore[misc]
        # The stock code sorts the parameters into groups; only the class is another.
        self.optimizer_cls_and_kwargs = self._whole_step.optimizer_class()
        try:
            self._whole_step.optimizer = super().create_optimizer(model)  # type: ignore[misc]
        finally:
            self.optimizer_cls_and_kwargs = None
        return self.optimizer

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        if self._whole_step is not None and self._whole_step.norm is not None:
            return self._whole_step.norm
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.unscale_(self.optimizer.optimizer)
        return super()._clip_grad_norm(model)  # type: ignore[misc]

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        if grad_norm is None and self._whole_step is not None and self._whole_step.norm is not None:
            return self._whole_step.norm
        return super()._get_grad_norm(model, grad_norm)  # type: ignore[misc]

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, Any]:
        if args.optim != ADAMW:
            return StockTrainer.get_optimizer_cls_and_kwargs(args, model)
        from fuseline.kernels.optimizer import FusedAdamW

        betas = (args.adam_beta1, args.adam_beta2)
        return FusedAdamW, {"lr": args.learning_rate, "betas": betas, "eps": args.adam_epsilon}

    # -- checkpoints

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """As in the stock trainer; `True` resumes from the last checkpoint that was written completely."""
        if resume_from_checkpoint is True:
            found = last_complete(Path(self.args.output_dir))
            if found is None:
                raise CheckpointMissing(
                    f"No valid checkpoint found in output directory ({self.args.output_dir})",
                    hint="train without resuming",
                )
            resume_from_checkpoint = str(found)
        elif resume_from_checkpoint and not is_complete(Path(resume_from_checkpoint)):
            raise CheckpointMissing(
                f"Can't find a valid checkpoint at {resume_from_checkpoint}",
                hint="resume_from_checkpoint=True takes the last complete one",
            )
        self._follow_model()
        result = super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)  # type: ignore[misc]
        report = self.report()
        logger.log(logging.WARNING if report.in_torch else logging.INFO, "%s", report)
        return result

    def evaluate(self, *args: Any, inference_with_ort: bool | None = None, **kwargs: Any) -> Any:
        """As in the stock trainer; `inference_with_ort` is a word of ORTTrainer and changes nothing."""
        _note_inference(inference_with_ort)
        return super().evaluate(*args, **kwargs)  # type: ignore[misc]

    def predict(self, *args: Any, inference_with_ort: bool | None = None, **kwargs: Any) -> Any:
        """As in the stock trainer; `inference_with_ort` is a word of ORTTrainer and changes nothing."""
        _note_inference(inference_with_ort)
        return super().predict(*args, **kwargs)  # type: ignore[misc]

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._follow_model()
        return super().evaluation_loop(*args, **kwargs)  # type: ignore[misc]

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run_dir = self._get_output_dir(trial=trial)  # type: ignore[attr-defined]
        folder = Path(run_dir) / f"checkpoint-{self.state.global_step}"  # type: ignore[attr-defined]
        # Old checkpoints go only once the new one is complete.
        if not self.args.save_only_model:
            consolidate(self.optimizer)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with marked(folder, main_process=self.args.should_save):
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            rotate_checkpoints(
                output_dir=run_dir,
                save_total_limit=limit,
                best_model_checkpoint=self.state.best_model_checkpoint,  # type: ignore[attr-defined]
                use_mtime=True,
            )


def _note_inference(chosen: bool | None) -> None:
    if chosen is False:
        logger.warning("inference_with_ort=False: evaluation runs on ONNX Runtime all the same")


class Trainer(_OnnxRuntime, StockTrainer):
    """`transformers.Trainer` on ONNX Runtime: change the import and nothing else."""


class Seq2SeqTrainer(_OnnxRuntime, StockSeq2SeqTrainer):
    """`transformers.Seq2SeqTrainer` on ONNX Runtime; generation for evaluation runs in torch."""
