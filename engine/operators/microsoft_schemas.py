"""Operators that ONNX Runtime has beside ONNX's own: signatures, with the types that its CPU kernels take.

ONNX Runtime's Python package does not tell them. One line each: inputs, then outputs, `?` for what may be
left out, then attributes with their defaults, or their type where there is none (in capitals: required).
float16 is computed as float32.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import onnx

__all__ = ["SCHEMAS"]

_LINES = """
Gelu(X) -> (Y)
BiasGelu(A, B) -> (C)
FastGelu(X, bias?) -> (Y)
QuickGelu(X) -> (Y) {alpha=1.702}
FusedMatMul(A, B) -> (Y) {alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0}
FusedGemm(A, B, C?) -> (Y) {alpha=1.0, beta=1.0, transA=0, transB=0, activation='', \
activation_alpha=float, activation_beta=float, activation_gamma=float}
FusedConv(X, W, B?, Z?) -> (Y) {auto_pad='NOTSET', dilations=ints, group=1, kernel_shape=ints, pads=ints, \
strides=ints, activation='', activation_params=floats}
Attention(input, weights, bias?, mask_index?: int32, past?, attention_bias?, past_sequence_length?: int32) \
-> (output, present?) {num_heads=INT, scale=float, unidirectional=0, mask_filter_value=float, \
qkv_hidden_sizes=ints, do_rotary=0, rotary_embedding_dim=int, past_present_share_buffer=int}
MultiHeadAttention(query, key?, value?, bias?, key_padding_mask?: int32, attention_bias?, past_key?, \
past_value?) -> (output, present_key?, present_value?) {num_heads=INT, scale=float, unidirectional=0, \
mask_filter_value=float}
RotaryEmbedding(input, position_ids: int64, cos_cache, sin_cache) -> (output) {interleaved=0, \
is_packed_batching=0, num_heads=0, rotary_embedding_dim=0, scale=1.0}
SkipLayerNormalization(input, skip, gamma, beta?, bias?) -> (output, mean?: float, inv_std_var?: float, \
input_skip_bias_sum?) {epsilon=float}
SkipSimplifiedLayerNormalization(input, skip, gamma, bias?) -> (output, mean?: float, inv_std_var?: float, \
input_skip_bias_sum?) {epsilon=float}
EmbedLayerNormalization(input_ids: int32, segment_ids?: int32, word_embedding, position_embedding, \
segment_embedding?, gamma, beta, mask?: int32, position_ids?: int32) -> (output, mask_index?: int32, \
embedding_sum?) {epsilon=float, mask_index_type=int}
BatchNormInternal(X, scale, B, input_mean, input_var) -> (Y, running_mean, running_var, saved_mean?, \
saved_inv_std?) {epsilon=1e-5, momentum=0.9, training_mode=0}
"""
_STANDARD_LINES = """
LayerNormalization(X, scale, B?) -> (Y, mean?: float, inv_std_var?: float) {axis=-1, epsilon=1e-5, \
stash_type=1}
SimplifiedLayerNormalization(X, scale) -> (Y, inv_std_var?: float) {axis=-1, epsilon=1e-5, stash_type=1}
"""
"""In ONNX's own domain: one is ONNX's since opset 17 only, the other is not."""

_FLOATS = ["tensor(float)", "tensor(float16)"]
_WIDE = [*_FLOATS, "tensor(double)"]
_OPTION = onnx.defs.OpSchema.FormalParameterOption
_KINDS = {"int": "INT", "float": "FLOAT", "ints": "INTS", "floats": "FLOATS", "INT": "INT"}


def _schema(line: str, domain: str, types: list[str]) -> onnx.defs.OpSchema:
    found = re.fullmatch(r"(\w+)\((.*?)\) -> \((.*?)\)(?: \{(.*)\})?", line)
    assert found is not None, line
    name, inputs, outputs, attributes = found.groups()
    return onnx.defs.OpSchema(
        name,
        domain,
        1,
        inputs=list(_parameters(inputs)),
        outputs=list(_parameters(outputs)),
        attributes=[_attribute(*a.split("=")) for a in (attributes or "").split(", ") if a],
        type_constraints=[("T", types, "")],
    )


def _parameters(text: str) -> Iterator[onnx.defs.OpSchema.FormalParameter]:
    for item in text.split(", "):
        name, _, kind = item.partition(": ")
        option = _OPTION.Optional if name.endswith("?") else _OPTION.Single
        type_str = f"tensor({kind})" if kind else "T"
        yield onnx.defs.OpSchema.FormalParameter(name.rstrip("?"), type_str, param_option=option)


def _attribute(name: str, default: str) -> onnx.defs.OpSchema.Attribute:
    if default in _KINDS:
        kind = getattr(onnx.defs.OpSchema.AttrType, _KINDS[default])
        return onnx.defs.OpSchema.Attribute(name, kind, required=default.isupper())
    value: Any = ast.literal_eval(default)
    return onnx.defs.OpSchema.Attribute(name, onnx.helper.make_attribute(name, value))


def _read(text: str, domain: str, types: list[str]) -> dict[tuple[str, str], onnx.defs.OpSchema]:
    schemas = [_schema(line, domain, types) for line in text.strip().splitlines()]
    return {(domain, s.name): s for s in schemas}


SCHEMAS = _read(_LINES, "com.microsoft", _FLOATS) | _read(_STANDARD_LINES, "", _WIDE)
