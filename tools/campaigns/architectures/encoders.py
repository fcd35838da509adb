"""Encoders of text."""

from __future__ import annotations

from typing import Any

from fuseline.tools.campaigns.architectures.entries import BASE, ENCODER, Entry, Settings, classifier

__all__ = ["ENCODERS"]

_ROBERTA: Settings = {**BASE, "pad_token_id": 1, "max_position_embeddings": 130, "type_vocab_size": 1}
_LAYOUT: Settings = {**ENCODER, "max_2d_position_embeddings": 64}


def _bert(head: str, **extra: Any) -> Entry:
    return Entry(f"BertFor{head}", "BertConfig", {**ENCODER, **extra})


ENCODERS: dict[str, Entry] = {
    "bert": _bert("SequenceClassification"),
    "bert-mlm": _bert("MaskedLM"),
    "bert-token": _bert("TokenClassification"),
    "bert-qa": _bert("QuestionAnswering", num_labels=2),
    "bert-choice": _bert("MultipleChoice"),
    "roberta": classifier("Roberta", _ROBERTA),
    "distilbert": classifier(
        "DistilBert", vocab_size=99, dim=64, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=128
    ),
    "albert": classifier("Albert", embedding_size=32),
    "electra": classifier("Electra", embedding_size=32),
    "mpnet": classifier("MPNet", _ROBERTA),
    "deberta-v2": classifier(
        "DebertaV2",
        {**ENCODER, "type_vocab_size": 0},
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        max_relative_positions=-1,
    ),
    "deberta": classifier(
        "Deberta", {**ENCODER, "type_vocab_size": 0}, relative_attention=True, pos_att_type=["c2p", "p2c"]
    ),
    "modernbert": classifier(
        "ModernBert", BASE, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2
    ),
    "xlm-roberta": classifier("XLMRoberta", _ROBERTA),
    "camembert": Entry("CamembertForTokenClassification", "CamembertConfig", _ROBERTA),
    "roformer": Entry("RoFormerForMaskedLM", "RoFormerConfig", {**ENCODER, "embedding_size": 32}),
    "mobilebert": classifier(
        "MobileBert",
        embedding_size=32,
        intra_bottleneck_size=32,
        true_hidden_size=32,
        num_feedforward_networks=2,
    ),
    "convbert": classifier("ConvBert", embedding_size=32, conv_kernel_size=3, head_ratio=2, num_groups=1),
    "squeezebert": classifier("SqueezeBert", embedding_size=64, q_groups=2, k_groups=2, v_groups=2),
    "esm": Entry("EsmForMaskedLM", "EsmConfig", {**_ROBERTA, "mask_token_id": 3}),
    "bert-regression": _bert("SequenceClassification", num_labels=1),
    "bert-multilabel": _bert("SequenceClassification", problem_type="multi_label_classification"),
    "roberta-mlm": Entry("RobertaForMaskedLM", "RobertaConfig", _ROBERTA),
    "albert-mlm": Entry("AlbertForMaskedLM", "AlbertConfig", {**ENCODER, "embedding_size": 32}),
    "electra-token": Entry(
        "ElectraForTokenClassification", "ElectraConfig", {**ENCODER, "embedding_size": 32}
    ),
    "modernbert-mlm": Entry(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {
            **BASE,
            "pad_token_id": 0,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "ernie": classifier("Ernie", {**ENCODER, "use_task_id": False}),
    "megatron-bert": classifier("MegatronBert"),
    "rembert": classifier("RemBert", input_embedding_size=32, output_embedding_size=32),
    "nystromformer": classifier("Nystromformer", num_landmarks=8, segment_means_seq_len=8),
    "data2vec-text": classifier("Data2VecText", _ROBERTA),
    "roberta-prelayernorm": classifier("RobertaPreLayerNorm", _ROBERTA),
    "xmod": classifier("Xmod", _ROBERTA, languages=["en_XX"], default_language="en_XX"),
    "xlm-roberta-xl": classifier("XLMRobertaXL", _ROBERTA),
    "layoutlm": classifier("LayoutLM", _LAYOUT),
    "layoutlmv3": classifier(
        "LayoutLMv3",
        _LAYOUT,
        input_size=32,
        patch_size=8,
        coordinate_size=10,
        shape_size=12,
        visual_embed=False,
    ),
    "lilt": classifier("Lilt", {**_LAYOUT, "type_vocab_size": 1, "hidden_size": 96}),
    "roc-bert": classifier(
        "RoCBert",
        pronunciation_vocab_size=99,
        shape_vocab_size=99,
        pronunciation_embed_dim=16,
        shape_embed_dim=16,
    ),
}
