"""Generated inputs respect types, shared dimensions, index ranges and masks, and the model runs on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuseline.engine.errors import ModelError
from fuseline.engine.inputs import generate, generate_sets, interface, load_npz, save_npz
from fuseline.engine.model import Model

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'


def model(text: str) -> Model:
    return Model.from_text(HEADER + text)


TABLE = "{" + ",".join("1" for _ in range(5 * 2)) + "}"
EMBEDDING = f"""agraph (int64[batch,sequence] input_ids, int64[batch,sequence] attention_mask)
    => (float[batch,sequence,2] y) <float[5,2] table = {TABLE}, int64[1] last = {{-1}}> {{
    e = Gather(table, input_ids)
    m = Cast <to: int = 1> (attention_mask)
    u = Unsqueeze(m, last)
    y = Mul(e, u)
}}"""


def test_indices_masks_and_shared_symbols() -> None:
    made = generate(model(EMBEDDING), sizes={"batch": 3, "sequence": 6})
    ids, mask = made["input_ids"], made["attention_mask"]
    assert ids.shape == mask.shape == (3, 6)
    assert ids.min() >= 0
    assert ids.max() < 5
    assert set(np.unique(mask)) <= {0, 1}
    assert mask[0].all()
    assert (np.diff(mask, axis=1) <= 0).all(), "ones come first"


def test_the_same_seed_gives_the_same_inputs_and_sets_differ_in_size() -> None:
    one, two = generate(model(EMBEDDING), seed=1), generate(model(EMBEDDING), seed=1)
    assert all(np.array_equal(one[k], two[k]) for k in one)
    sets = generate_sets(model(EMBEDDING))
    assert sets[0]["input_ids"].shape != sets[1]["input_ids"].shape


def test_labels_stay_below_the_number_of_classes() -> None:
    made = generate(
        model(
            """agraph (float[batch,3] logits, int64[batch] labels) => (float loss) {
                loss = SoftmaxCrossEntropyLoss(logits, labels)
            }"""
        ),
        sizes={"batch": 50},
    )
    assert set(np.unique(made["labels"])) == {0, 1, 2}


def test_an_index_shifted_on_its_way_stays_inside() -> None:
    made = generate(
        model(
            f"""agraph (int64[n] positions) => (float[n,2] y)
            <float[5,2] table = {TABLE}, int64 offset = {{2}}> {{
                shifted = Add(positions, offset)
                y = Gather(table, shifted)
            }}"""
        ),
        sizes={"n": 40},
    )
    assert made["positions"].max() == 2


def test_bounds_by_a_symbol_follow_its_size() -> None:
    made = generate(
        model("agraph (float[n] table, int64[m] index) => (float[m] y) { y = Gather(table, index) }"),
        sizes={"n": 2, "m": 30},
    )
    assert made["index"].max() == 1


def test_a_weight_fixes_channels_that_the_shape_leaves_open() -> None:
    weight = ",".join("1" for _ in range(2 * 5 * 3 * 3))
    made = generate(
        model(
            f"""agraph (float[b,c,h,w] image) => (float[b,d,e,f] y) <float[2,5,3,3] k = {{{weight}}}> {{
                y = Conv(image, k)
            }}"""
        )
    )
    assert made["image"].shape[1] == 5


def test_sizes_that_do_not_fit_are_replaced() -> None:
    made = generate(
        model(
            """agraph (float[batch,n] x) => (float[a,b] y) <int64[2] shape = {-1, 16}> {
                y = Reshape(x, shape)
                k = Add(y, x)
            }"""
        )
    )
    assert made["x"].size % 16 == 0


def test_integers_are_no_zero_divisors_and_conditions_are_true() -> None:
    made = generate(
        model(
            """agraph (int64[100] a, int64[100] b, bool go) => (int64[100] y) {
                y = If (go) <
                    then_branch = t () => (int64[100] q) { q = Div(a, b) },
                    else_branch = e () => (int64[100] r) { r = Identity(a) }
                >
            }"""
        )
    )
    assert made["b"].min() > 0
    assert made["go"]


def test_input_sets_go_down_both_branches() -> None:
    made = generate_sets(
        model(
            """agraph (float[3] x, int64 rate) => (float[3] y) <int64 high = {16000}> {
                c = Equal(rate, high)
                y = If (c) <
                    then_branch = t () => (float[3] q) { q = Exp(x) },
                    else_branch = e () => (float[3] r) { r = Tanh(x) }
                >
            }"""
        )
    )
    assert [int(s["rate"]) for s in made] == [16000, 8000]


def test_values_that_say_nothing_are_replaced() -> None:
    made = generate(
        model("agraph (float[3] x) => (float[3] y) { a = Abs(x) n = Neg(a) b = Neg(n) y = Log(b) }")
    )
    assert made["x"].shape == (3,)
    negative = generate(
        model(
            """agraph (float[1] x) => (float[1] y) <float[1] one = {1}> {
                n = Min(x, one) y = Sqrt(n)
            }"""
        ),
        seed=3,
    )
    assert np.isfinite(np.sqrt(negative["x"])).all()


def test_defaults_are_not_asked_for() -> None:
    made = Model.from_text(
        HEADER + "agraph (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add(x, w) }"
    )
    assert [i.name for i in interface(made)] == ["x"]


def test_a_model_that_never_runs_says_so() -> None:
    with pytest.raises(ModelError, match="no generated inputs make the model run"):
        generate(model("agraph (float[2,3] x) => (float[a,b] y) <int64[2] s = {4, 4}> { y = Reshape(x, s) }"))


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="no free dimension 'bach'"):
        generate(model(EMBEDDING), sizes={"bach": 3})


def _npz(tmp_path: Path, **arrays: np.ndarray) -> Path:
    save_npz(tmp_path / "in.npz", arrays)
    return tmp_path / "in.npz"


def test_npz_is_read_and_checked(tmp_path: Path) -> None:
    made = model(EMBEDDING)
    good = generate(made)
    loaded = load_npz(_npz(tmp_path, **good), made)
    assert all(np.array_equal(loaded[k], good[k]) for k in good)
    ids = good["input_ids"]
    for arrays, message in (
        ({"input_ids": ids}, "the array for input 'attention_mask' is missing"),
        ({**good, "input_id": ids}, "the model has no input 'input_id'"),
        ({**good, "input_ids": ids.astype(np.int32)}, "is int32, but the model takes int64"),
        ({**good, "input_ids": ids[0]}, "has 1 dimensions, but the model takes 2"),
        ({**good, "input_ids": ids[:1]}, "'batch' = 2, but input 'input_ids' has 'batch' = 1"),
    ):
        with pytest.raises(ModelError) as caught:
            load_npz(_npz(tmp_path, **arrays), made)
        assert message in str(caught.value)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ModelError, match=r"is not an \.npz archive"):
        load_npz(tmp_path / "text.npz", made)
    with pytest.raises(ModelError, match="there is no file"):
        load_npz(tmp_path / "none.npz", made)


def test_a_vector_is_long_enough_to_tell_operators_apart() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (bool[N] x, bool[N] z) => (bool[N] y) { y = And(x, z) }'
    )
    feeds = generate(Model.from_text(text))
    assert len(set(zip(feeds["x"].tolist(), feeds["z"].tolist(), strict=True))) == 4
