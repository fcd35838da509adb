"""What operators demand of their inputs: library and records agree, and malformed inputs give errors."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fuseline.kernels import DOMAIN, OPERATORS, Operator
from fuseline.kernels.contract import Bindings, matches, resolve
from fuseline.kernels.evaluate import build_model, create_session, evaluate
from fuseline.kernels.loader import declarations, scratch_bytes
from fuseline.kernels.operator import Array, Port

_SIZES = {"N": 5, "K": 4, "V": 7, "B": 2, "S": 3, "T": 4, "H": 2, "G": 2, "D": 6, "R": 4, "Q": 5}
_BINDINGS = Bindings(dict(_SIZES), {"R": (2, 3)})
_TYPES = {"float": np.float32, "double": np.float64, "int64": np.int64, "bool": np.bool_}
_TYPES |= {"bfloat16": np.float32}  # numpy has none: models of one operator cast
_TENSORS = {"FusedAdamW": 4, "FusedSgd": 3}


def _described(operator: Operator) -> list[str]:
    def line(kind: str, item: Port) -> str:
        role = "variadic" if item.variadic else "optional" if item.optional else "required"
        return f"{kind} {item.name} {item.type} {role} {item.shape}"

    return [
        f"operator {operator.name}",
        *(line("input", item) for item in operator.inputs),
        *(line("output", item) for item in operator.outputs),
        *(
            f"attribute {name} {'int' if isinstance(default, int) else 'float'} {default:.6f}"
            for name, default in operator.attributes.items()
        ),
        *(f"in-place {index}" for index in operator.in_place),
    ]


def test_library_and_records_declare_the_same_operators() -> None:
    declared = sorted(declarations().split("operator ")[1:])
    recorded = sorted("\n".join(_described(o)).removeprefix("operator ") + "\n" for o in OPERATORS.values())
    assert declared == recorded


def _shape(item: Port, bindings: Bindings) -> tuple[int, ...]:
    text = item.shape.removesuffix("?").removeprefix("^")
    shape = resolve(text, bindings) if text else (1,)
    assert shape is not None
    return tuple(int(size) for size in shape if isinstance(size, int))


def _value(item: Port, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if item.name in ("labels", "ids"):
        return rng.integers(0, _SIZES["V"], shape)
    if item.name in ("ratio", "apply", "max_norm", "gradient_scale"):
        return np.full(shape, 0.1).astype(_TYPES[item.type])
    if item.name.endswith("rows"):
        return np.arange(math.prod(shape)).reshape(shape)
    return rng.standard_normal(shape).astype(_TYPES[item.type])


def _inputs(operator: Operator, rng: np.random.Generator, bindings: Bindings = _BINDINGS) -> list[Array]:
    values = [_value(item, _shape(item, bindings), rng) for item in operator.inputs if not item.variadic]
    if operator.inputs[-1].variadic:
        values += [rng.standard_normal((3, 2)).astype(np.float32) for _ in range(_TENSORS[operator.name])]
    named = dict(zip((item.name for item in operator.inputs), values, strict=False))
    if "state" in named and operator.name.startswith("FusedAttention"):
        named["state"][2] = 0  # not interleaved
    if operator.inputs[-1].name == "sizes":
        own = "BSS" if "Packed" in operator.name else "BST"
        values[-1] = np.array([int(str(bindings.sizes[letter])) for letter in own])
    return values


def _node(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.domain == DOMAIN)


def _without(operator: Operator) -> tuple[str, ...]:
    return tuple(item.name for item in operator.outputs if item.name == "dmask")


def _mutations(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield (0,)
    yield ()
    yield (2, *shape)
    yield shape[1:]
    for axis, size in enumerate(shape):
        for other in (0, size - 1, size + 1):
            yield (*shape[:axis], other, *shape[axis + 1 :])


def _ports() -> list[Any]:
    return [
        pytest.param(operator, index, id=f"{operator.name}-{item.name}")
        for operator in OPERATORS.values()
        for index, item in enumerate(operator.inputs)
    ]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_what_fits_the_contract_runs(operator: Operator, rng: np.random.Generator) -> None:
    inputs = _inputs(operator, rng)
    outputs = evaluate(operator, inputs, 2, _without(operator))
    shapes = operator.output_shapes(
        {item.name: value.shape for item, value in zip(operator.inputs, inputs, strict=False)}
    )
    wanted = [item for item in operator.outputs if item.name not in _without(operator)]
    for item, value in zip(wanted, outputs, strict=True):
        assert value.dtype == _TYPES[item.type]
        assert shapes[item.name] is None or tuple(shapes[item.name] or ()) == value.shape


@pytest.mark.parametrize("operator,index", _ports())
def test_malformed_inputs_give_an_error(operator: Operator, index: int, rng: np.random.Generator) -> None:
    """Every wrong shape of this input is refused by name; one that fits after all may not crash either."""
    valid = _inputs(operator, rng)
    refused = 0
    for shape in _mutations(valid[index].shape):
        inputs = [*valid]
        inputs[index] = _value(operator.inputs[index], shape, rng)
        given = {i.name: v.shape for i, v in zip(operator.inputs, inputs, strict=False) if not i.variadic}
        if operator.bind(given) is None:
            with pytest.raises(Exception, match=f"fuseline.{operator.name}: .* has shape .*; expected "):
                evaluate(operator, inputs, 2, _without(operator))
            refused += 1
            continue
        message = _refusal(operator, inputs)
        assert message is None or f"fuseline.{operator.name}: " in message
        refused += message is not None
    assert refused or operator.inputs[index].shape == "*R" or len(operator.inputs) == 1


def _refusal(operator: Operator, inputs: list[Array]) -> str | None:
    try:
        evaluate(operator, inputs, 2, _without(operator))
    except Exception as error:
        return str(error)
    return None


@pytest.mark.parametrize("operator,index", _ports())
def test_wrong_element_types_give_an_error(operator: Operator, index: int, rng: np.random.Generator) -> None:
    inputs = _inputs(operator, rng)
    model = build_model(operator, inputs, without=_without(operator))
    _node(model).input[index] = f"in{index}"  # past a cast
    model.graph.input[index].type.tensor_type.elem_type = onnx.TensorProto.INT32
    with pytest.raises(Exception, match=r"tensor\(int32\)"):
        create_session(model)


@pytest.mark.parametrize("operator,index", _ports())
def test_left_out_inputs_give_an_error(operator: Operator, index: int, rng: np.random.Generator) -> None:
    inputs = _inputs(operator, rng)
    model = build_model(operator, inputs, without=_without(operator))
    _node(model).input[index] = ""
    feeds = {f"in{i}": value for i, value in enumerate(inputs)}
    with pytest.raises(Exception, match=f"{operator.name}|Fused"):
        create_session(model).run(None, feeds)


@pytest.mark.parametrize("value", [-1, 7, 2**62, -(2**62)])
def test_labels_outside_the_classes_give_an_error(value: int, rng: np.random.Generator) -> None:
    for name, index in (("FusedCrossEntropy", 1), ("FusedCrossEntropyGrad", 2)):
        inputs = _inputs(OPERATORS[name], rng)
        inputs[index][1, 2] = value
        with pytest.raises(Exception, match=f"label {value} of row 5 is neither one of 7 classes nor"):
            evaluate(OPERATORS[name], inputs)


@pytest.mark.parametrize("value", [-8, 7, 2**62, -(2**62)])
def test_indices_outside_the_table_give_an_error(value: int, rng: np.random.Generator) -> None:
    for name in ("FusedEmbedding", "FusedEmbeddingGrad"):
        inputs = _inputs(OPERATORS[name], rng)
        inputs[1][0, 1] = value
        with pytest.raises(Exception, match=f"index {value} at position 1 is outside a table of 7 rows"):
            evaluate(OPERATORS[name], inputs)


@pytest.mark.parametrize("ratio", [-0.1, 1.0, math.nan, math.inf])
def test_ratios_that_are_none_give_an_error(ratio: float, rng: np.random.Generator) -> None:
    for operator in OPERATORS.values():
        for index, item in enumerate(operator.inputs):
            if item.name == "ratio":
                inputs = _inputs(operator, rng)
                inputs[index][0] = ratio
                with pytest.raises(Exception, match=r"ratio must be in \[0, 1\)"):
                    evaluate(operator, inputs, 1, _without(operator))


@pytest.mark.parametrize("heads,groups", [(0, 0), (3, 0), (3, 2)])
def test_heads_that_share_no_keys_evenly_give_an_error(heads: int, groups: int) -> None:
    q, k = np.zeros((1, 2, heads, 4), np.float32), np.zeros((1, 2, groups, 4), np.float32)
    rest = [np.zeros(0, np.float32)] * 2 + [np.zeros(1, np.float32), np.array([0])]
    with pytest.raises(Exception, match=f"{heads} heads of queries do not share {groups} heads of keys"):
        evaluate(OPERATORS["FusedAttention"], [q, k, k, *rest])


@pytest.mark.parametrize("queries,keys", [(0, 4), (3, 0), (0, 0)])
def test_attention_without_queries_or_keys_is_zero(queries: int, keys: int) -> None:
    q, k = np.ones((2, queries, 2, 4), np.float32), np.ones((2, keys, 2, 4), np.float32)
    rest = [np.zeros(0, np.float32)] * 2 + [np.zeros(1, np.float32), np.array([0])]
    saved = evaluate(OPERATORS["FusedAttention"], [q, k, k, *rest])
    gradients = evaluate(
        OPERATORS["FusedAttentionGrad"], [q, q, k, k, *rest[:3], *saved], without=("dmask", "dbias")
    )
    for value, shape in zip([saved[0], *gradients], [q.shape, q.shape, k.shape, k.shape], strict=True):
        assert value.shape == shape
        assert not value.any()


_TOO_LARGE = """
import resource
import numpy as np
from fuseline.kernels import OPERATORS
from fuseline.kernels.evaluate import build_model, create_session
q, k = np.ones((1, 1, 2, 1), np.float32), np.ones((1, 1 << 22, 2, 1), np.float32)
inputs = [q, k, k, *[np.zeros(0, np.float32)] * 2, np.zeros(1, np.float32), np.array([0])]
session = create_session(build_model(OPERATORS["FusedAttention"], inputs), 2)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (300 << 20),) * 2)
try:
    session.run(None, {f"in{i}": v for i, v in enumerate(inputs)})
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_failures_on_worker_threads_are_errors_of_the_node() -> None:
    """Scratch memory that is not to be had: on whichever thread, the process lives on and says so."""
    done = subprocess.run([sys.executable, "-c", _TOO_LARGE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "fuseline.FusedAttention: " in done.stdout
    assert "alloc" in done.stdout


_LARGE = Bindings(
    {"N": 96, "K": 130, "V": 40, "B": 3, "S": 70, "T": 50, "H": 4, "G": 2, "D": 24, "R": 16, "Q": 80},
    {"R": (9, 100)},
)


def _run_on_a_thread(work: Callable[[], None]) -> None:
    """Returns when the thread is gone: `join` alone comes back before it gave up its scratch memory."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():
        time.sleep(0.001)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_workspace_bounds_what_a_run_holds(
    operator: Operator, threads: int, rng: np.random.Generator
) -> None:
    """A new thread holds no scratch memory; after one run with few outputs wanted it holds what that took."""
    inputs = _inputs(operator, rng, _LARGE)
    without = tuple(item.name for item in operator.outputs[1:] if item.optional)
    held: list[int] = []

    def work() -> None:
        before = scratch_bytes()
        session = create_session(build_model(operator, inputs, without=without), threads)
        session.run(None, {f"in{i}": value for i, value in enumerate(inputs)})
        held.append(scratch_bytes() - before)

    gc.collect()  # sessions of other tests give back what their threads hold now, not while this one measures
    _run_on_a_thread(work)
    shapes = {i.name: v.shape for i, v in zip(operator.inputs, inputs, strict=False) if not i.variadic}
    bound = sum(operator.workspace_bytes(shapes, threads))
    assert held[0] <= bound
    assert threads > 1 or bound <= 4 * held[0] + 4096


def test_letters_stand_for_one_size() -> None:
    bindings = Bindings()
    assert matches("*R,N", ("batch", 7, 5), bindings)
    assert matches("*R", ("other", 7), bindings)
    assert not matches("*R", (7,), bindings)
    assert not matches("N", (6,), bindings)
    assert matches("N?", (0,), bindings)
    assert matches("^B,N", (1, 5), bindings)
    assert resolve("*R", bindings) == ("batch", 7)
    assert resolve("T", bindings) is None
    assert matches("1", (1, 1), bindings)
    assert not matches("1", (0,), bindings)
