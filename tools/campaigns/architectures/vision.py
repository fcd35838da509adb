"""Models of images, alone and beside text."""

from __future__ import annotations

from typing import Any

from fuseline.tools.campaigns.architectures.entries import IMAGES, Entry, Settings

__all__ = ["VISION"]

_TOWER: Settings = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "projection_dim": 32,
}
_TWO_TOWERS: Settings = {
    "text_config": {**_TOWER, "vocab_size": 99, "max_position_embeddings": 64, "eos_token_id": 98},
    "vision_config": {**_TOWER, "image_size": 32, "patch_size": 8},
    "projection_dim": 32,
}
_PYRAMID: Settings = {
    "image_size": 64,
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [16, 32],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
}


def _vision(model: str, settings: Settings = IMAGES, **extra: Any) -> Entry:
    return Entry(f"{model}ForImageClassification", f"{model}Config", {**settings, **extra})


VISION: dict[str, Entry] = {
    "vit": _vision("ViT"),
    "deit": _vision("DeiT"),
    "beit": _vision("Beit", use_relative_position_bias=True, use_mask_token=False),
    "dinov2": _vision("Dinov2"),
    "swin": _vision(
        "Swin", {}, image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "convnext": _vision("ConvNext", {}, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "resnet": _vision(
        "ResNet", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    ),
    "regnet": _vision("RegNet", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "mobilenet-v2": _vision("MobileNetV2", {}, depth_multiplier=0.25, min_depth=8, image_size=64),
    "clip": Entry("CLIPModel", "CLIPConfig", _TWO_TOWERS),
    "dinov2-registers": _vision("Dinov2WithRegisters"),
    "vit-msn": _vision("ViTMSN"),
    "data2vec-vision": _vision("Data2VecVision", use_relative_position_bias=True),
    "swinv2": _vision(
        "Swinv2",
        {},
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    "convnextv2": _vision("ConvNextV2", {}, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "mobilenet-v1": _vision("MobileNetV1", {}, depth_multiplier=0.25, min_depth=8, image_size=64),
    "bit": _vision(
        "Bit", {}, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4, image_size=32
    ),
    "poolformer": _vision(
        "PoolFormer",
        {},
        image_size=64,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_encoder_blocks=2,
        patch_sizes=[7, 3],
        strides=[4, 2],
        padding=[2, 1],
    ),
    "segformer": _vision("Segformer", _PYRAMID),
    "mobilevit": _vision(
        "MobileViT",
        {},
        image_size=64,
        hidden_sizes=[24, 32, 40],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64],
        num_attention_heads=2,
    ),
    "efficientnet": _vision(
        "EfficientNet", {}, image_size=64, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320
    ),
    "focalnet": _vision(
        "FocalNet", {}, image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32]
    ),
    "siglip": Entry(
        "SiglipForImageClassification",
        "SiglipConfig",
        {
            "vision_config": {**_TOWER, "image_size": 32, "patch_size": 8},
            "text_config": {**_TOWER, "vocab_size": 99, "max_position_embeddings": 64},
        },
    ),
    "hiera": _vision(
        "Hiera",
        {},
        image_size=[32, 32],
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 2],
        patch_size=[3, 3],
        patch_stride=[2, 2],
        patch_padding=[1, 1],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        masked_unit_attention=[True, False],
        num_query_pool=1,
    ),
}
