"""Each part of the pattern language, on graphs of a few nodes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from fuseline.engine.errors import PassError
from fuseline.engine.model import Model
from fuseline.engine.patterns import Context, Fusion, Matcher
from fuseline.engine.rewriting.rewriter import Rewriter


def model(body: str, inputs: str = "float[n, 4] x, float[n, 4] y", outputs: str = "float[n, 4] out") -> Model:
    text = f'<ir_version: 10, opset_import: ["" : 18]>\ng ({inputs}) => ({outputs}) {{\n{body}\n}}'
    return Model.from_text(text)


def apply(fusion: Fusion, target: Model, limit: int | None = None) -> Rewriter:
    rewriter = Rewriter(target, fusion.name, limit=limit)
    assert fusion.run(target, rewriter) == rewriter.changes
    return rewriter


def ops(target: Model) -> list[str]:
    return [n.op_type for n in target.nodes() if n.op_type != "Constant"]


class Base(Fusion):
    def replace(self, op: Any, x: Any) -> Any:
        return op.Neg(x)


class Commuted(Base):
    """Relu(x)·2 → Neg(x)"""

    name = "commuted"

    def match(self, op: Any, x: Any) -> Any:
        return op.Mul(op.Relu(x), 2.0)


@pytest.mark.parametrize("product", ["Mul(r, two)", "Mul(two, r)"])
def test_operands_commute(product: str) -> None:
    target = model(f"two = Constant<value = float {{2.0}}>()\nr = Relu(x)\nout = {product}")
    assert apply(Commuted(), target).changes == 1
    assert ops(target) == ["Neg"]
    assert target.graph.outputs[0].name == "out"


def test_constants_have_a_relative_tolerance() -> None:
    near = model("two = Constant<value = float {2.00001}>()\nr = Relu(x)\nout = Mul(r, two)")
    far = model("two = Constant<value = float {2.1}>()\nr = Relu(x)\nout = Mul(r, two)")
    assert apply(Commuted(), near).changes == 1
    assert apply(Commuted(), far).changes == 0


def test_a_result_used_elsewhere_is_refused_with_the_reason() -> None:
    body = "two = Constant<value = float {2.0}>()\nr = Relu(x)\nm = Mul(r, two)\nout = Add(m, r)"
    target = model(body)
    rewriter = apply(Commuted(), target)
    assert rewriter.changes == 0
    (rejection,) = rewriter.rejections
    assert rejection.reason.startswith("the intermediate 'r' of Relu is also used by 'Add_")


def test_a_result_that_is_an_output_is_refused_with_the_reason() -> None:
    target = model(
        "two = Constant<value = float {2.0}>()\nr = Relu(x)\nout = Mul(r, two)",
        outputs="float[n, 4] out, float[n, 4] r",
    )
    assert apply(Commuted(), target).rejections[0].reason == (
        "the intermediate 'r' of Relu is an output of the graph"
    )


class Sum(Base):
    """x+y+1 → Neg(x)"""

    name = "sum"

    def match(self, op: Any, x: Any, y: Any) -> Any:
        return op.associative("Add", op.Relu(x), op.Abs(y), 1.0)


@pytest.mark.parametrize(
    "sums",
    [
        "s = Add(r, a)\nout = Add(s, one)",
        "s = Add(one, a)\nout = Add(r, s)",
        "s = Add(r, one)\nout = Add(a, s)",
    ],
)
def test_associative_operands_in_any_grouping(sums: str) -> None:
    target = model(f"one = Constant<value = float {{1.0}}>()\nr = Relu(x)\na = Abs(y)\n{sums}")
    assert apply(Sum(), target).changes == 1
    assert ops(target) == ["Neg"]


class Noisy(Base):
    """Relu(Cast?(x)) after noise → Neg(x)"""

    name = "noisy"

    def match(self, op: Any, x: Any) -> Any:
        return op.Exp(op.through(op.Relu(op.optional(op.Abs, x)), "Identity", "Cast"))


@pytest.mark.parametrize(
    "body",
    [
        "r = Relu(x)\nout = Exp(r)",
        "a = Abs(x)\nr = Relu(a)\nout = Exp(r)",
        "r = Relu(x)\ni = Identity(r)\nc = Cast<to = 1>(i)\nout = Exp(c)",
    ],
)
def test_optional_nodes_and_noise(body: str) -> None:
    target = model(body)
    assert apply(Noisy(), target).changes == 1
    assert ops(target) == ["Neg"]


class Chain(Base):
    """Relu(Relu(…x)) → Neg(x)"""

    name = "chain"

    def match(self, op: Any, x: Any) -> Any:
        return op.repeated(op.Relu, x, at_least=1, at_most=5)


def test_the_largest_match_wins() -> None:
    target = model("a = Relu(x)\nb = Relu(a)\nc = Relu(b)\nout = Identity(c)")
    assert apply(Chain(), target).changes == 1
    assert ops(target) == ["Neg", "Identity"]


class Join(Fusion):
    """Concat(Relu(first), …) → Sum(first, …)"""

    name = "join"

    def match(self, op: Any, first: Any, *rest: Any) -> Any:
        return op.Concat(op.Relu(first), *rest, axis=-1)

    def check(self, *rest: Any) -> str | None:
        return None if len(rest) == 2 else f"{len(rest) + 1} parts"

    def replace(self, op: Any, first: Any, *rest: Any) -> Any:
        return op.Sum(first, *rest)


def test_variadic_inputs_and_an_axis_counted_from_either_end() -> None:
    target = model("r = Relu(x)\nout = Concat<axis = 1>(r, y, y)")
    assert apply(Join(), target).changes == 1
    assert [v.name for v in target.graph[-1].inputs if v] == ["x", "y", "y"]
    other = model("r = Relu(x)\nout = Concat<axis = 1>(r, y)")
    assert [r.reason for r in apply(Join(), other).rejections] == ["2 parts"]


class Twins(Fusion):
    """(Relu(x), Abs(x)) → Split(Neg(x))"""

    name = "twins"

    def match(self, op: Any, x: Any) -> Any:
        return op.Relu(x), op.Abs(x)

    def replace(self, op: Any, x: Any) -> Any:
        return op.Split(x, _outputs=2, axis=0, num_outputs=2)


def test_several_outputs_are_found_among_users_and_the_graph_stays_sorted() -> None:
    target = model("a = Abs(x)\ne = Exp(a)\nr = Relu(x)\nout = Add(e, r)")
    assert apply(Twins(), target).changes == 1
    assert ops(target) == ["Split", "Exp", "Add"]


def test_a_match_that_would_make_a_cycle_is_left_alone() -> None:
    class Cyclic(Twins):
        """(Relu(x), Abs(y)) → Split(x)"""

        name = "cyclic"

        def match(self, op: Any, x: Any, y: Any) -> Any:
            return op.Add(op.Relu(x), y), op.Abs(y)

    target = model("a = Abs(y)\nr = Relu(a)\nout = Add(r, y)")
    assert apply(Cyclic(), target).changes == 0


class Typed(Base):
    """Relu of floats of rank 2 → Neg"""

    name = "typed"

    def match(self, op: Any, x: Any) -> Any:
        return op.Relu(x.of(dtype=ir.DataType.FLOAT, rank=2, constant=False))


def test_types_and_ranks_are_conditions() -> None:
    assert apply(Typed(), model("out = Relu(x)")).changes == 1
    deep = model("out = Relu(x)", "float[n, 4, 4] x", "float[n, 4, 4] out")
    assert apply(Typed(), deep).changes == 0


class Attributes(Fusion):
    """LeakyRelu<alpha>(x) → Selu<alpha>(x)"""

    name = "attributes"

    def match(self, op: Any, x: Any, alpha: Any) -> Any:
        return op.LeakyRelu(x, alpha=alpha, _label="leaky")

    def check(self, alpha: float, context: Context) -> str | None:
        assert context.node("leaky").op_type == "LeakyRelu"
        return None if alpha < 0.5 else f"alpha {alpha:g}"

    def replace(self, op: Any, x: Any, alpha: float) -> Any:
        return op.Selu(x, alpha=alpha)


def test_attributes_are_captured_with_the_schema_default() -> None:
    target = model("out = LeakyRelu(x)")
    assert apply(Attributes(), target).changes == 1
    assert target.graph[0].attributes["alpha"].as_float() == pytest.approx(0.01)
    refused = apply(Attributes(), model("out = LeakyRelu<alpha = 0.75>(x)"))
    assert refused.rejections[0].reason == "alpha 0.75"


def test_inside_a_body_but_not_across_its_border() -> None:
    inside = """
        t = Constant<value = bool {1}>()
        out = If(t) <
          then_branch = th () => (float[n, 4] a) {
            two = Constant<value = float {2.0}>() r = Relu(x) a = Mul(r, two)
          },
          else_branch = el () => (float[n, 4] b) { b = Identity(x) }>
    """
    across = """
        t = Constant<value = bool {1}>()
        r = Relu(x)
        out = If(t) <
          then_branch = th () => (float[n, 4] a) { two = Constant<value = float {2.0}>() a = Mul(r, two) },
          else_branch = el () => (float[n, 4] b) { b = Identity(x) }>
    """
    assert apply(Commuted(), model(inside)).changes == 1
    assert apply(Commuted(), model(across)).changes == 0


def test_a_limit_withholds_rewrites() -> None:
    body = "a = Relu(x)\nb = Abs(a)\nc = Relu(b)\nout = Abs(c)"
    target = model(body)
    assert apply(Chain(), target, limit=1).changes == 1
    assert ops(target) == ["Neg", "Abs", "Relu", "Abs"]


def test_graphs_without_the_operators_are_not_searched() -> None:
    target = model("out = Relu(x)")
    assert not Matcher(Commuted().pattern(), target).could_match({("", "Relu")})
    assert Matcher(Commuted().pattern(), target).could_match({("", "Relu"), ("", "Mul")})


def test_a_pattern_that_is_no_pattern_is_refused() -> None:
    class Wrong(Base):
        """nothing → nothing"""

        name = "wrong"

        def match(self, op: Any, x: Any) -> Any:
            return 3

    with pytest.raises(
        PassError, match=r"'wrong', match at .*test_language.py:\d+: it returned 3, not what `op` made"
    ):
        Wrong().pattern()


@pytest.mark.parametrize("times", [1, 2])
def test_a_replacement_that_fits_its_own_pattern_comes_to_an_end(times: int) -> None:
    class Again(Fusion):
        """Relu(x) → Relu(x), once or twice"""

        name = "again"

        def match(self, op: Any, x: Any) -> Any:
            return op.Relu(x)

        def replace(self, op: Any, x: Any) -> Any:
            for _ in range(times):
                x = op.Relu(x)
            return x

    with pytest.raises(PassError, match=r"'again', replace at .*test_language.py:\d+: it goes on replacing"):
        apply(Again(), model("out = Relu(x)"))


def test_a_chain_longer_than_the_patience_is_reduced_to_its_end() -> None:
    class Shorter(Fusion):
        """Relu(Relu(x)) → Relu(x)"""

        name = "shorter"

        def match(self, op: Any, x: Any) -> Any:
            return op.Relu(op.Relu(x))

        def replace(self, op: Any, x: Any) -> Any:
            return op.Relu(x)

    body = "\n".join(f"v{i + 1} = Relu(v{i})" for i in range(1500))
    target = model(body.replace("v1500", "out").replace("(v0)", "(x)"))
    apply(Shorter(), target)
    assert ops(target) == ["Relu"]


def test_one_of_tells_which() -> None:
    class Either(Fusion):
        """Relu(x) or Abs(x) → Neg(x) or Exp(x)"""

        name = "either"

        def match(self, op: Any, x: Any) -> Any:
            return op.one_of(op.Relu(x), op.Abs(x), pick="which")

        def replace(self, op: Any, x: Any, which: int) -> Any:
            return op.Exp(x) if which else op.Neg(x)

    target = model("a = Relu(x)\nout = Abs(a)")
    assert apply(Either(), target).changes == 2
    assert ops(target) == ["Neg", "Exp"]


def test_a_torch_function_as_the_pattern() -> None:
    torch = pytest.importorskip("torch")

    class ByExample(Base):
        """x·sigmoid(x) → Neg(x)"""

        name = "by-example"

        def match(self, op: Any, x: Any) -> Any:
            return op.example(lambda t: t * torch.sigmoid(t) * 3.0, x, shapes=[(2, 3)])

    body = "s = Sigmoid(x)\nm = Mul(s, x)\nk = Constant<value = float {3.0}>()\nout = Mul(k, m)"
    target = model(body)
    assert apply(ByExample(), target).changes == 1
    assert ops(target) == ["Neg"]


def test_an_attribute_by_predicate() -> None:
    class Steep(Base):
        """LeakyRelu<alpha > 0.1>(x) → Neg(x)"""

        name = "steep"

        def match(self, op: Any, x: Any) -> Any:
            return op.LeakyRelu(x, alpha=lambda a: a > 0.1)

    assert apply(Steep(), model("out = LeakyRelu<alpha = 0.5>(x)")).changes == 1
    assert apply(Steep(), model("out = LeakyRelu(x)")).changes == 0


def test_a_shared_node_is_kept_for_its_other_users() -> None:
    class Shared(Base):
        """Exp(Relu(x)) → Neg(x), whoever else reads the Relu"""

        name = "shared"

        def match(self, op: Any, x: Any) -> Any:
            return op.Exp(op.Relu(x, _shared=True))

    target = model("r = Relu(x)\ne = Exp(r)\nout = Add(e, r)")
    assert apply(Shared(), target).changes == 1
    assert sorted(ops(target)) == ["Add", "Neg", "Relu"]


def test_of_overlapping_matches_the_largest_then_the_earliest_is_taken() -> None:
    class Pair(Base):
        """Relu(Relu(x)), an Abs behind it or not → Neg(x)"""

        name = "pair"

        def match(self, op: Any, x: Any) -> Any:
            pair = op.Relu(op.Relu(x))
            return op.one_of(op.Abs(pair), pair)

    larger = model("a = Relu(x)\nb = Relu(a)\nc = Relu(b)\nout = Abs(c)")
    apply(Pair(), larger)
    assert ops(larger) == ["Relu", "Neg"]
    earlier = model("a = Relu(x)\nb = Relu(a)\nout = Relu(b)")
    apply(Pair(), earlier)
    assert ops(earlier) == ["Neg", "Relu"]
