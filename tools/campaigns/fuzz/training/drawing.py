"""One trainable graph: fragments of transformers with deviations, a few operators more, and a loss."""

from __future__ import annotations

import random

import numpy as np
from onnx import TensorProto, numpy_helper

from fuseline.tools.campaigns.fuzz.drawing import SYMBOLS, Array, Drawing, Shape, Unfit, Value, random_content
from fuseline.tools.campaigns.fuzz.fragments import activations, attention, blocks, norms
from fuseline.tools.campaigns.fuzz.fragments.table import hidden_states
from fuseline.tools.campaigns.fuzz.operators.reductions import reduce

__all__ = ["draw_trainable"]

_OPSETS = (13, 14, 15, 16, 17, 17, 17, 18, 18, 20, 21)
_FRAGMENTS = (
    attention.self_attention,
    attention.packed_attention,
    attention.cross_attention,
    attention.grouped_attention,
    norms.lone_layer_norm,
    norms.lone_rms_norm,
    norms.skip_and_norm,
    norms.written_softmax,
    activations.lone_activation,
    activations.bias_and_activation,
    activations.added_bias_and_activation,
    activations.product_and_activation,
    activations.transposed_product,
    activations.gated,
    activations.halves_gated,
    blocks.embeddings,
    blocks.whole_layer,
    blocks.first_token,
    blocks.sizes_and_back,
    blocks.noise,
)
_UNARY = ("Tanh", "Sigmoid", "Sin", "Erf", "Neg", "Exp", "Softplus", "Relu", "Abs", "Softsign")


class _Learning(Drawing):
    """A drawing whose weights are initializers, and in which what is fed mostly meets a weight at once."""

    def input(self, dtype: int, shape: Shape, kind: str = "any", bound: int = 0) -> Value:
        fed = super().input(dtype, shape, kind, bound)
        free = not shape or shape[-1] in SYMBOLS.values()
        if dtype != TensorProto.FLOAT or free or self.maybe(0.3):
            return fed
        learned = self.constant(random_content(self.chance, dtype, shape[-1:]))
        return self.one(self.choose(("Mul", "Add")), fed, learned)

    def constant(self, content: Array) -> Value:
        if content.size < 2 or content.dtype != np.float32:
            return super().constant(content)
        name = self.name()
        self.initializers.append(numpy_helper.from_array(content, name))
        value = Value(name, TensorProto.FLOAT, content.shape, content)
        self.values.append(value)
        return value


def draw_trainable(chance: random.Random) -> tuple[Drawing, Value]:
    """The drawing and its loss."""
    g = _Learning(chance, chance.choice(_OPSETS))
    while True:
        for _ in range(chance.randint(1, 2)):
            try:
                g.choose(_FRAGMENTS)(g)
            except Unfit:
                continue
            _more(g)
        try:
            return g, _loss(g)
        except Unfit:
            hidden_states(g)


def _more(g: Drawing) -> None:
    """Up to two operators on what is there."""
    for _ in range(g.chance.randint(0, 2)):
        x = g.pick_float((1, 4), fresh=0.0)
        try:
            if g.maybe(0.5):
                g.one(g.choose(_UNARY), x)
            else:
                g.one(
                    g.choose(("Add", "Mul", "Sub")), x, g.choose([v for v in g.values if v.dtype == x.dtype])
                )
        except Unfit:
            continue


def _loss(g: Drawing) -> Value:
    """One number from everything that nothing reads: of squares, waves, or the entropy of labels."""
    read = {name for node in g.nodes for name in node.input}
    made = {name for node in g.nodes for name in node.output}
    ends = [v for v in g.values if v.name in made and v.name not in read and v.content is None]
    ends = [v for v in ends if v.dtype == TensorProto.FLOAT and v.shape]
    if not ends:
        raise Unfit("nothing to learn from")
    total = _part(g, ends[0])
    for end in ends[1:]:
        total = g.one("Add", total, _part(g, end))
    return total


def _part(g: Drawing, x: Value) -> Value:
    style = g.chance.randrange(4)
    if style == 0 and x.rank >= 2 and x.shape[-1] > 1:
        return _entropy(g, x)
    if style == 1:
        x = g.one("Sin", x)
    elif style == 2:
        x = g.one("Mul", x, g.constant(np.array(g.chance.uniform(-1, 1), np.float32)))
    else:
        x = g.one("Mul", x, x)
    return reduce(g, g.choose(("ReduceMean", "ReduceSum")), x, None, keep=False)


def _entropy(g: Drawing, x: Value) -> Value:
    """Cross-entropy over the last axis, of rows as exporters make them, some of them ignored."""
    rows = int(np.prod(x.shape[:-1]))
    flat = (
        x
        if x.rank == 2
        else g.one("Reshape", x, g.ints(-1, x.shape[-1]), shapes=[(rows, x.shape[-1])], types=[x.dtype])
    )
    labels = g.input(TensorProto.INT64, x.shape[:-1], "label", x.shape[-1])
    if x.rank > 2:
        labels = g.one("Reshape", labels, g.ints(-1), shapes=[(rows,)], types=[labels.dtype])
    reduction = g.choose(("mean", "mean", "sum"))
    return g.one("SoftmaxCrossEntropyLoss", flat, labels, reduction=reduction, ignore_index=-100)
