"""One case of the campaign: a graph, a pipeline, and inputs of several sizes, all from one number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from fuseline.tools.campaigns.fuzz.drawing import SYMBOLS, Drawing, Input, Unfit, random_content
from fuseline.tools.campaigns.fuzz.fragments import fragments
from fuseline.tools.campaigns.fuzz.operators.control import few
from fuseline.tools.campaigns.fuzz.pipelines import draw_pipeline, draw_training_pipeline
from fuseline.tools.campaigns.fuzz.training.drawing import draw_trainable

__all__ = ["Case", "draw_case"]

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

OPSETS = range(7, 22)
_SIZES = (0, 1, 1, 2, 4, 5, 9)
_TRAINABLE = 12
"""One case in so many is a trainable one."""


@dataclass
class Case:
    """`feeds` are candidates: sizes at which the graph itself does not run count for nothing."""

    model: bytes
    feeds: list[Feeds]
    pipeline: str
    label: str = ""
    trainable: tuple[str, ...] = ()
    """Initializers that learn: then gradients of the first output are judged, and not outputs."""


def draw_case(seed: int, index: int) -> Case:
    """The same numbers give the same case, in any process."""
    chance = random.Random(f"{seed}/{index}")
    if index % _TRAINABLE == _TRAINABLE - 1:
        return _trainable_case(chance, f"{seed}/{index}")
    g = Drawing(chance, chance.choice(OPSETS))
    g.main_float = chance.choices(
        (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16), (0.7, 0.12, 0.18)
    )[0]
    _fill(g)
    style = chance.choice(("named", "named", "anonymous", "anonymous", "mixed", "placeholder", "fixed"))
    model = _finish(g, style)
    feeds = [_feed(chance, g.inputs, sizes) for sizes in _assignments(chance, style == "fixed")]
    return Case(model.SerializeToString(), feeds, draw_pipeline(chance), f"{seed}/{index}")


def _trainable_case(chance: random.Random, label: str) -> Case:
    learned: tuple[str, ...] = ()
    while not learned:
        g, loss = draw_trainable(chance)
        weights = [t.name for t in g.initializers if t.data_type == TensorProto.FLOAT and np.prod(t.dims) > 1]
        learned = tuple(name for name in weights if chance.random() < 0.9)
    style = chance.choice(("named", "named", "anonymous", "mixed", "fixed"))
    model = _model(g, style, [helper.make_tensor_value_info(loss.name, loss.dtype, [])])
    feeds = [_feed(chance, g.inputs, sizes) for sizes in _filled(chance, style == "fixed")]
    return Case(model.SerializeToString(), feeds, draw_training_pipeline(chance), label, learned)


def _fill(g: Drawing) -> None:
    kind = g.chance.random()
    if kind < 0.4:
        few(g, 10)
    for _ in range(g.chance.randint(1, 2) if kind >= 0.4 else 0):
        try:
            g.choose(fragments)(g)
        except Unfit:
            continue
        few(g, 3)
    if not g.nodes or all(v.content is not None for v in g.values):
        x = g.input(g.main_float, g.shape())
        g.one("Identity", x)


def _finish(g: Drawing, style: str) -> onnx.ModelProto:
    chance = g.chance
    produced = {n for node in g.nodes for n in node.output}
    made = [v for v in g.values if v.name in produced and v.content is None]
    consumed = {n for node in g.nodes for n in node.input}
    ends = [v for v in made if v.name not in consumed]
    outputs = [v for v in ends if chance.random() < 0.9] + [v for v in made if chance.random() < 0.08]
    outputs = list({v.name: v for v in outputs or made[-1:]}.values())
    chance.shuffle(outputs)
    results = []
    for v in outputs:
        known = chance.random() < 0.5
        shape = _declared(chance, v.shape, style) if known and style == "fixed" else [None] * v.rank
        results.append(
            helper.make_tensor_value_info(v.name, v.dtype, shape if chance.random() < 0.9 else None)
        )
    if g.inputs and chance.random() < 0.05:
        results.append(onnx.ValueInfoProto(name=chance.choice(g.inputs).name))
    return _model(g, style, results)


def _model(g: Drawing, style: str, results: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(i.name, i.dtype, _declared(g.chance, i.shape, style)) for i in g.inputs
    ]
    graph = helper.make_graph(g.nodes, "drawn", inputs, results, g.initializers)
    imports = [helper.make_opsetid("", g.opset)]
    if g.functions:
        imports.append(helper.make_opsetid("local", 1))
    return helper.make_model(
        graph,
        ir_version=g.chance.choice((8, 9, 10)),
        opset_imports=imports,
        functions=list(g.functions.values()),
    )


def _declared(chance: random.Random, shape: tuple[int, ...], style: str) -> list[int | str | None]:
    by_size = {size: name for name, size in SYMBOLS.items()}
    dims: list[int | str | None] = []
    for size in shape:
        name = by_size.get(size)
        how = chance.choice(("named", "anonymous", "placeholder")) if style == "mixed" else style
        if name is None or how == "fixed":
            dims.append(size)
        else:
            dims.append({"named": name, "anonymous": None}.get(how, f"unk__{chance.randrange(4)}"))
    return dims


def _assignments(chance: random.Random, fixed: bool) -> Iterator[dict[str, int]]:
    """Sizes to run at: as drawn, all one, then odd and unequal, then with an empty dimension."""
    yield dict(SYMBOLS)
    if fixed:
        yield dict(SYMBOLS)
        return
    yield dict.fromkeys(SYMBOLS, 1)
    yield {name: chance.choice(_SIZES[1:]) for name in SYMBOLS}
    yield {name: chance.choice(_SIZES) for name in SYMBOLS} | {chance.choice(sorted(SYMBOLS)): 0}


def _filled(chance: random.Random, fixed: bool) -> Iterator[dict[str, int]]:
    """Sizes to learn at: the same without an empty dimension."""
    yield dict(SYMBOLS)
    if not fixed:
        yield dict.fromkeys(SYMBOLS, 1)
        yield {name: chance.choice(_SIZES[1:]) for name in SYMBOLS}


def _feed(chance: random.Random, inputs: list[Input], sizes: dict[str, int]) -> Feeds:
    now = {base: sizes[name] for name, base in SYMBOLS.items()}
    return {
        i.name: np.asarray(
            random_content(chance, i.dtype, tuple(now.get(s, s) for s in i.shape), i.kind, i.bound)
        )
        for i in inputs
    }
