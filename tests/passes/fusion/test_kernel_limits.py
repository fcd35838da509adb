"""What ONNX Runtime 1.19.2 lacks or gets wrong on the CPU, so that fusions keep away (docs/fusing.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

Array = npt.NDArray[Any]
HEADS, SIZE = 2, 8


def session(
    op_type: str,
    feeds: dict[str, Array],
    inputs: list[str],
    outputs: tuple[str, ...] = ("y",),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> Any:
    node = helper.make_node(op_type, inputs, outputs, domain=domain, **attributes)
    types = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in feeds.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(k, types[k], v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info(outputs[0], onnx.TensorProto.FLOAT, None)],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("BiasAdd", [(1, 4, 8), (8,), (1, 4, 8)], {}),
        ("BiasSplitGelu", [(1, 4, 16), (16,)], {}),
        ("GroupNorm", [(1, 4, 4, 8), (8,), (8,)], {"groups": 2, "activation": 0}),
        ("GemmFastGelu", [(4, 8), (8, 8)], {}),
        (
            "GatedRelativePositionBias",
            [(1, 4, 16), (16,), (2, 4, 4), (8, 8), (8,), (1, 2, 1, 1)],
            {"num_heads": 2},
        ),
    ],
)
def test_operators_without_a_cpu_kernel(
    op_type: str, inputs: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    feeds = {f"i{n}": floats(*shape) for n, shape in enumerate(inputs)}
    with pytest.raises(Exception, match="Could not find an implementation"):
        session(op_type, feeds, list(feeds), **attributes)


def attended(mask: Array | None, bias: Array | None, queries: int, keys: int) -> float:
    """How far MultiHeadAttention is from numpy."""
    feeds = {
        "q": floats(2, queries, HEADS * SIZE),
        "k": floats(2, keys, HEADS * SIZE),
        "v": floats(2, keys, HEADS * SIZE),
    }
    names = ["q", "k", "v", "", "", ""]
    if mask is not None:
        feeds["mask"], names[4] = mask, "mask"
    if bias is not None:
        feeds["bias"], names[5] = bias, "bias"
    run = session("MultiHeadAttention", feeds, names, num_heads=HEADS, mask_filter_value=-1e30)
    q, k, v = (feeds[n].reshape(2, -1, HEADS, SIZE).transpose(0, 2, 1, 3) for n in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = np.where(mask[:, None, None, :] > 0, scores, -1e30)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
    return float(np.abs(run.run(None, feeds)[0] - expected.reshape(2, queries, -1)).max())


def test_a_mask_is_right_only_with_as_many_keys_as_queries() -> None:
    mask = np.array([[1, 1, 0, 0, 0, 1], [1, 0, 1, 1, 0, 0]], np.int32)
    assert attended(mask, None, 6, 6) < 1e-5
    assert attended(mask, None, 4, 6) > 1e-2


def test_a_whole_bias_is_right_with_any_number_of_keys() -> None:
    assert attended(None, floats(2, HEADS, 4, 6), 4, 6) < 1e-5


def test_the_past_counts_only_where_the_joined_keys_are_asked_for() -> None:
    feeds = {"q": floats(2, 3, HEADS * SIZE), "k": floats(2, HEADS, 3, SIZE), "v": floats(2, HEADS, 3, SIZE)}
    feeds |= {"pk": floats(2, HEADS, 5, SIZE), "pv": floats(2, HEADS, 5, SIZE) + 1}
    feeds["bias"] = floats(2, HEADS, 3, 8)
    q = feeds["q"].reshape(2, 3, HEADS, SIZE).transpose(0, 2, 1, 3)
    keys, values = (np.concatenate([feeds[f"p{n}"], feeds[n]], 2) for n in "kv")
    scores = q @ keys.transpose(0, 1, 3, 2) / np.sqrt(SIZE) + feeds["bias"]
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True) @ values).transpose(0, 2, 1, 3).reshape(2, 3, -1)
    names = ["q", "k", "v", "", "", "bias", "pk", "pv"]
    for outputs, right in ((("y", "keys", "values"), True), (("y",), False)):
        run = session("MultiHeadAttention", feeds, names, outputs, num_heads=HEADS)
        assert np.allclose(run.run(None, feeds)[0], expected, atol=1e-5) == right


def test_grouped_attention_is_causal_and_takes_no_mask() -> None:
    feeds: dict[str, Array] = {n: floats(2, 6, HEADS * SIZE) * i for i, n in enumerate("qkv", 1)}
    feeds |= {
        "last": np.full(2, 5, np.int32),
        "total": np.array(6, np.int32),
        "mask": np.ones((2, 6), np.int32),
    }
    names = ["q", "k", "v", "", "", "last", "total"]
    heads: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": HEADS, "outputs": ("y", "keys", "values")}
    with pytest.raises(Exception, match="not in range"):
        session("GroupQueryAttention", feeds, [*names, "", "", "mask"], **heads)
    del feeds["mask"]
    made = session("GroupQueryAttention", feeds, names, **heads).run(None, feeds)[0]
    q, k, v = (feeds[n].reshape(2, 6, HEADS, SIZE).transpose(0, 2, 1, 3) for n in "qkv")
    scores = np.where(np.tri(6, dtype=bool), q @ k.transpose(0, 1, 3, 2) / np.sqrt(SIZE), -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, 6, -1)
    np.testing.assert_allclose(made, expected, atol=1e-4)


def test_layer_norm_loses_what_is_small_beside_the_mean() -> None:
    spread = floats(1, 64)
    for mean, is_right in ((10.0, True), (10_000.0, False)):
        feeds = {"x": spread + np.float32(mean), "scale": np.ones(64, np.float32)}
        made = session("LayerNormalization", feeds, list(feeds), domain="").run(None, feeds)[0]
        centred = feeds["x"] - feeds["x"].mean()
        assert np.allclose(made, centred / centred.std(), atol=1e-2) == is_right
