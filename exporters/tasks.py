"""Tasks: what goes into a model and what comes out, independent of its architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuseline.exporters.errors import ExportError
from fuseline.exporters.inputs import Input

__all__ = ["TASKS", "Task", "find_task", "infer_task"]


@dataclass(frozen=True)
class Task:
    """A task: the transformers auto class that builds it, its inputs, labels and outputs."""

    name: str
    auto_class: str
    inputs: tuple[Input, ...]
    labels: tuple[Input, ...]
    #: Fields of the model's output that become graph outputs, those that exist, in this order.
    outputs: tuple[str, ...]
    #: What the class names of models for this task end with.
    suffixes: tuple[str, ...]
    #: Keyword arguments of the forward that are not graph inputs when the loss is wanted.
    loss_arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def can_train(self) -> bool:
        """Whether the model itself computes a loss for this task."""
        return bool(self.labels or self.loss_arguments)


_IDS = Input("input_ids", ("batch", "sequence"), "tokens")
_MASK = Input("attention_mask", ("batch", "sequence"), "mask", default=1)
_SEGMENTS = Input("token_type_ids", ("batch", "sequence"), "segments", default=0)
_TEXT = (_IDS, _MASK, _SEGMENTS)
_CLASS = (Input("labels", ("batch",), "classes"),)
_IMAGE = (Input("pixel_values", ("batch", "channels", "height", "width"), "normal"),)
_AUDIO = (Input("input_values", ("batch", "samples"), "normal"),)
_SPECTRUM = (Input("input_features", ("batch", "mel_bins", "frames"), "normal"),)
_CHOICES = tuple(Input(i.name, ("batch", "choices", "sequence"), i.fill, i.default) for i in _TEXT)
_TARGET = (Input("labels", ("batch", "target_sequence"), "target-tokens"),)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "text-classification",
            "AutoModelForSequenceClassification",
            _TEXT,
            _CLASS,
            ("logits",),
            ("ForSequenceClassification",),
        ),
        Task(
            "token-classification",
            "AutoModelForTokenClassification",
            _TEXT,
            (Input("labels", ("batch", "sequence"), "token-classes"),),
            ("logits",),
            ("ForTokenClassification",),
        ),
        Task(
            "question-answering",
            "AutoModelForQuestionAnswering",
            _TEXT,
            (
                Input("start_positions", ("batch",), "positions"),
                Input("end_positions", ("batch",), "positions"),
            ),
            ("start_logits", "end_logits"),
            ("ForQuestionAnswering", "ForQuestionAnsweringSimple"),
        ),
        Task(
            "masked-lm",
            "AutoModelForMaskedLM",
            _TEXT,
            (Input("labels", ("batch", "sequence"), "masked-tokens"),),
            ("logits",),
            ("ForMaskedLM",),
        ),
        Task(
            "causal-lm",
            "AutoModelForCausalLM",
            (_IDS, _MASK),
            (Input("labels", ("batch", "sequence"), "next-tokens"),),
            ("logits",),
            ("ForCausalLM", "LMHeadModel"),
        ),
        Task(
            "seq2seq-lm",
            "AutoModelForSeq2SeqLM",
            (_IDS, _MASK),
            _TARGET,
            ("logits",),
            ("ForConditionalGeneration", "MTModel"),
        ),
        Task(
            "multiple-choice",
            "AutoModelForMultipleChoice",
            _CHOICES,
            (Input("labels", ("batch",), "choices"),),
            ("logits",),
            ("ForMultipleChoice",),
        ),
        Task(
            "feature-extraction",
            "AutoModel",
            _TEXT,
            (),
            ("last_hidden_state", "pooler_output"),
            ("Model",),
        ),
        Task(
            "sentence-embedding",
            "AutoModel",
            _TEXT,
            (),
            ("sentence_embedding",),
            (),
        ),
        Task(
            "image-classification",
            "AutoModelForImageClassification",
            _IMAGE,
            _CLASS,
            ("logits",),
            ("ForImageClassification",),
        ),
        Task(
            "audio-classification",
            "AutoModelForAudioClassification",
            _AUDIO,
            _CLASS,
            ("logits",),
            ("ForAudioClassification",),
        ),
        Task(
            "ctc",
            "AutoModelForCTC",
            _AUDIO,
            (Input("labels", ("batch", "target_sequence"), "transcript"),),
            ("logits",),
            ("ForCTC",),
        ),
        Task(
            "speech-seq2seq",
            "AutoModelForSpeechSeq2Seq",
            _SPECTRUM,
            _TARGET,
            ("logits",),
            (),
        ),
        Task(
            "zero-shot-image",
            "AutoModel",
            (_IDS, *_IMAGE, _MASK),
            (),
            ("logits_per_image", "logits_per_text", "image_embeds", "text_embeds"),
            (),
            loss_arguments=(("return_loss", True),),
        ),
    )
}


def find_task(name: str) -> Task:
    """The task of this name, or an error that lists them all."""
    if name in TASKS:
        return TASKS[name]
    raise ExportError(f"unknown task {name!r}", hint=f"known tasks: {', '.join(sorted(TASKS))}")


def infer_task(class_name: str, config: Any) -> Task:
    """The task that a transformers model class is for, from its name and what its config describes."""
    towers = hasattr(config, "text_config") and hasattr(config, "vision_config")
    if towers and "For" not in class_name:
        return TASKS["zero-shot-image"]
    for task in TASKS.values():
        if class_name.endswith(task.suffixes):
            return _by_modality(task, config)
    raise ExportError(
        f"cannot tell the task of {class_name}", hint=f"give one of: {', '.join(sorted(TASKS))}"
    )


def _by_modality(task: Task, config: Any) -> Task:
    """Speech models share class-name endings with text models; their configs tell them apart."""
    if task.name == "seq2seq-lm" and hasattr(config, "num_mel_bins"):
        return TASKS["speech-seq2seq"]
    if task.name == "text-classification" and hasattr(config, "conv_stride"):
        return TASKS["audio-classification"]
    return task
