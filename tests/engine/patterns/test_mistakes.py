"""A pass author's mistakes: each has a message with the plugin's file and line, and nothing is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fuseline.engine.errors import FuselineError
from fuseline.engine.model import Model
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import Registry, registry
from fuseline.tools.main import app

OPSET = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
HEAD = '''
import onnx_ir as ir
from fuseline.engine.pass_ import Pass
from fuseline.engine.patterns import Fusion

class Mine(Fusion):
    """Neg(Neg(x)) → x"""
    name = "mine"

    def match(self, op, x):
        return op.Neg(op.Neg(x))
'''
CHECK = "\n    def check(self, x):\n        {}\n"
REPLACE = "\n    def replace(self, op, x):\n        {}\n"
GOOD = REPLACE.format("return op.Identity(x)")

MISTAKES = {
    "capture in replace": (
        HEAD + "\n    def replace(self, op, y):\n        return op.Identity(y)\n",
        13,
        "'y'",
    ),
    "capture in check": (HEAD + "\n    def check(self, xx=None):\n        return None\n" + GOOD, 13, "'xx'"),
    "operator in replace": (HEAD + REPLACE.format("return op.Identty(x)"), 14, "did you mean 'Identity'"),
    "attribute in replace": (HEAD + REPLACE.format("return op.Softmax(x, axs=1)"), 14, "did you mean 'axis'"),
    "arity in replace": (HEAD + REPLACE.format("return op.Identity(x, x)"), 14, "2 inputs"),
    "another type": (HEAD + REPLACE.format("return op.Cast(x, to=ir.DataType.DOUBLE)"), 13, "DOUBLE"),
    "another shape": (HEAD + REPLACE.format("return op.Unsqueeze(x, [0])"), 13, "shape [1,4]"),
    "forgotten return": (HEAD + REPLACE.format("op.Identity(x)"), 13, "a `return` missing"),
    "check returns True": (HEAD + CHECK.format("return True") + GOOD, 13, "returned True"),
    "crash in check": (HEAD + CHECK.format("return x.nothing") + GOOD, 14, "AttributeError"),
    "operator in match": (HEAD.replace("op.Neg(op", "op.Ngg(op") + GOOD, 11, "did you mean 'Neg'"),
    "attribute in match": (HEAD.replace("op.Neg(x)", "op.Neg(x, axis=1)") + GOOD, 11, "'axis'"),
    "arity in match": (HEAD.replace("op.Neg(x)", "op.Neg(x, x)") + GOOD, 11, "at most 1 input"),
    "nothing matched": (HEAD.replace("return op", "op") + GOOD, 10, "a `return` missing"),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y) { a = Neg(x) y = Neg(a) }'
    )
    Model.from_text(text).save(path)
    return path


def fuseline(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuseline.tools.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(*arguments: object) -> str:
    """What the command line says in the end, in this process."""
    try:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
    finally:
        registry._passes.pop("mine", None)
    assert isinstance(result.exception, FuselineError), result.output
    notes = getattr(result.exception, "__notes__", ())
    return "".join(f"{result.exception} {' '.join(notes)}".split())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_run_says_where_and_writes_nothing(mistake: str, tmp_path: Path, model: Path) -> None:
    code, line, words = MISTAKES[mistake]
    plugin, made = tmp_path / "plugin.py", tmp_path / "out.onnx"
    plugin.write_text(code)
    said = refused("run", model, "-o", made, "--pipeline", "mine", "--plugin", plugin)
    assert f"plugin.py:{line}" in said
    assert words.replace(" ", "") in said
    assert not made.exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_explain_says_where(mistake: str, tmp_path: Path, model: Path) -> None:
    code, line, words = MISTAKES[mistake]
    plugin = tmp_path / "plugin.py"
    plugin.write_text(code)
    said = refused("passes", "explain", "mine", model, "--plugin", plugin)
    assert f"plugin.py:{line}" in said
    assert words.replace(" ", "") in said


MORE_MISTAKES = {
    "a domain": (HEAD + REPLACE.format('return op.Gelu(x, _domain="com.microsft")'), 14, "'com.microsoft'?"),
    "a node of one's own": (
        HEAD + REPLACE.format('return ir.node("Identity", [x]).outputs[0]'),
        13,
        "not made by `op`",
    ),
    "a loose value": (HEAD + REPLACE.format('return op.Neg(ir.Value(name="w"))'), 13, "nothing produces"),
    "what is replaced": (
        HEAD.replace("op.Neg(op.Neg(x))", 'op.Neg(op.Neg(x), _label="n")')
        + "\n    def replace(self, op, context):\n"
        + '        return op.Identity(context.node("n").outputs[0])\n',
        13,
        "the value that it takes the place of",
    ),
    "exit in replace": (HEAD + REPLACE.format("raise SystemExit(0)"), 14, "SystemExit"),
    "exit when loaded": ("import sys\nsys.exit(0)\n", 2, "SystemExit"),
    "no node": (HEAD.replace("return op.Neg(op.Neg(x))", "return x") + GOOD, 10, "must end in a node"),
    "an element type": (
        HEAD.replace("(x))", '(x.of(dtype="float")))') + GOOD,
        11,
        "'float' is no element type",
    ),
    "half an axis": (HEAD + REPLACE.format("return op.Softmax(x, axis=0.5)"), 14, "takes whole numbers"),
    "too large a number": (HEAD + REPLACE.format("return op.Add(x, 1e60)"), 14, "more than FLOAT can hold"),
    "results in match": (
        HEAD.replace("return op.Neg(op.Neg(x))", "a, b = op.Neg(x, _outputs=2); return a") + GOOD,
        11,
        "makes at most 1 output",
    ),
    "a tree of one": (
        HEAD.replace("op.Neg(op.Neg(x))", 'op.associative("Add", x)') + GOOD,
        11,
        "two leaves at least",
    ),
    "no alternative": (HEAD.replace("op.Neg(op.Neg(x))", "op.one_of()") + GOOD, 11, "no alternative"),
    "an empty chain": (
        HEAD.replace("op.Neg(op.Neg(x))", "op.repeated(op.Neg, x, at_least=3, at_most=2)") + GOOD,
        11,
        "at least 3 and at most 2",
    ),
    "a wrapped node": (
        HEAD.replace("op.Neg(op.Neg(x))", "op.optional(op.Neg(x), x)") + GOOD,
        11,
        "an operator without its input",
    ),
    "a rank as text": (HEAD.replace("(x))", '(x.of(rank="2")))') + GOOD, 11, "'2' is no rank"),
    "no replace": (HEAD, None, "has no method 'replace'"),
    "no name": (HEAD.replace('name = "mine"', "") + GOOD, None, "plugin.py:6 has no name"),
    "a pipeline's name": (HEAD.replace('"mine"', '"inference"') + GOOD, None, "like a ready pipeline"),
}


@pytest.mark.parametrize("mistake", MORE_MISTAKES)
def test_more_mistakes(mistake: str, tmp_path: Path, model: Path) -> None:
    code, line, words = MORE_MISTAKES[mistake]
    (tmp_path / "plugin.py").write_text(code)

    def run() -> None:
        [mine] = Registry().load_plugin(tmp_path / "plugin.py")
        Pipeline((mine(),)).run(Model.load(model))

    with pytest.raises(FuselineError) as error:
        run()
    assert words in str(error.value)
    assert line is None or f"plugin.py:{line}:" in str(error.value)


def test_a_pass_that_is_no_pattern_names_its_line_too(tmp_path: Path, model: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        HEAD.split("class")[0]
        + '''
class Mine(Pass):
    """Neg → Sgn"""
    name = "mine"

    def run(self, model, rewriter):
        for node in list(model.graph):
            if rewriter.permit(node):
                new = ir.node("Sgn", [node.inputs[0]])
                rewriter.replace([node], [new], [(node.outputs[0], new.outputs[0])])
        return rewriter.changes
'''
    )
    made = tmp_path / "out.onnx"
    done = fuseline("run", model, "-o", made, "--pipeline", "mine", "--plugin", plugin)
    said = (done.stdout + done.stderr).replace("\n", "").replace(" ", "")
    assert done.returncode == 2
    assert "plugin.py:15" in said
    assert "didyoumean'Sign'" in said
    assert not made.exists()


def test_a_foreign_operator_of_the_same_name_is_no_part_of_a_tree() -> None:
    from fuseline.engine.patterns import Fusion
    from fuseline.engine.patterns.explain import explain

    class Sum(Fusion):
        """x+x+x → 3·x"""

        name = "test-sum"

        def match(self, op, x):  # type: ignore[no-untyped-def]
            return op.associative("Add", x, x, x)

        def replace(self, op, x):  # type: ignore[no-untyped-def]
            return op.Mul(x, 3.0)

    text = OPSET + "g (float[4] x) => (float[4] y) {{ a = {}Add(x, x) y = Add(a, x) }}"
    assert len(explain(Sum(), Model.from_text(text.format(""))).matches) == 1
    assert not explain(Sum(), Model.from_text(text.format("own."))).matches


def test_a_pattern_of_two_nodes_has_near_misses(model: Path) -> None:
    from fuseline.engine.patterns import Fusion
    from fuseline.engine.patterns.explain import explain

    class Double(Fusion):
        """Neg(Neg(x)) → x"""

        name = "test-double"

        def match(self, op, x):  # type: ignore[no-untyped-def]
            return op.Neg(op.Neg(x))

        def replace(self, op, x):  # type: ignore[no-untyped-def]
            return op.Identity(x)

    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y) { a = Abs(x) y = Neg(a) }'
    )
    [miss] = explain(Double(), Model.from_text(text)).near_misses
    assert (miss.matched, miss.size, miss.op_type) == (1, 2, "Abs")
    assert "expected the output of Neg" in str(miss)


def test_what_the_opset_cannot_express_is_a_near_miss() -> None:
    from fuseline.engine.patterns import Fusion
    from fuseline.engine.patterns.explain import explain

    class Newer(Fusion):
        """Neg(Neg(x)) → Trilu(x)"""

        name = "test-newer"

        def match(self, op, x):  # type: ignore[no-untyped-def]
            return op.Neg(op.Neg(x))

        def replace(self, op, x):  # type: ignore[no-untyped-def]
            return op.Trilu(x)

    text = '<ir_version: 8, opset_import: ["" : {}]>\n'
    text += "g (float[4,4] x) => (float[4,4] y) {{ a = Neg(x) y = Neg(a) }}"
    assert len(explain(Newer(), Model.from_text(text.format(14))).matches) == 1
    explanation = explain(Newer(), Model.from_text(text.format(13)))
    assert not explanation.matches
    nearest = str(explanation.near_misses[0])
    assert "Trilu" in nearest
    assert "13" in nearest


def test_a_foreign_operator_of_the_same_name_is_not_looked_through() -> None:
    from fuseline.engine.patterns import Fusion
    from fuseline.engine.patterns.explain import explain

    class Twice(Fusion):
        """Neg(Identity(Neg(x))) → x"""

        name = "test-twice"

        def match(self, op, x):  # type: ignore[no-untyped-def]
            return op.Neg(op.through(op.Neg(x), "Identity"))

        def replace(self, op, x):  # type: ignore[no-untyped-def]
            return op.Identity(x)

    text = OPSET + "g (float[4] x) => (float[4] y) {{ a = Neg(x) b = {}Identity(a) y = Neg(b) }}"
    assert len(explain(Twice(), Model.from_text(text.format(""))).matches) == 1
    assert not explain(Twice(), Model.from_text(text.format("own."))).matches


def test_a_node_that_was_taken_out_is_missed(model: Path) -> None:
    from fuseline.engine.pass_ import Pass

    class Vandal(Pass):
        """y → nothing"""

        name = "test-vandal"

        def run(self, model, rewriter):  # type: ignore[no-untyped-def]
            model.graph.remove(list(model.graph)[-1])
            return 1

    missed = "output 'y' of 'g' is produced by nothing"
    with pytest.raises(FuselineError, match=f"'test-vandal' left a graph that cannot run: .*{missed}"):
        Pipeline((Vandal(),)).run(Model.load(model))
    made = Model.load(model)
    made.graph.remove(list(made.graph)[-1])
    with pytest.raises(FuselineError, match=missed):
        made.save(model)
