"""Models of sound."""

from __future__ import annotations

from fuseline.tools.campaigns.architectures.entries import (
    BASE,
    IMAGES,
    TRANSLATION,
    Entry,
    Settings,
    classifier,
)

__all__ = ["SOUND"]

_WAVE: Settings = {
    **BASE,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 4, 3),
    "conv_stride": (10, 4, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 32,
    "apply_spec_augment": False,
    "pad_token_id": 0,
}


SOUND: dict[str, Entry] = {
    "wav2vec2": classifier("Wav2Vec2", _WAVE),
    "wav2vec2-ctc": Entry("Wav2Vec2ForCTC", "Wav2Vec2Config", _WAVE),
    "hubert": classifier("Hubert", _WAVE),
    "ast": Entry(
        "ASTForAudioClassification",
        "ASTConfig",
        {
            **IMAGES,
            "patch_size": 4,
            "frequency_stride": 4,
            "time_stride": 4,
            "max_length": 32,
            "num_mel_bins": 16,
        },
    ),
    "whisper-classifier": Entry(
        "WhisperForAudioClassification",
        "WhisperConfig",
        {**TRANSLATION, "num_mel_bins": 16, "max_source_positions": 30, "classifier_proj_size": 32},
    ),
    "wavlm": classifier("WavLM", _WAVE),
    "unispeech": classifier("UniSpeech", _WAVE),
    "unispeech-sat": classifier("UniSpeechSat", _WAVE),
    "sew": classifier("SEW", {**_WAVE, "squeeze_factor": 2}),
    "data2vec-audio": classifier(
        "Data2VecAudio", {**_WAVE, "conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 2}
    ),
}
