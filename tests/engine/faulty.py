"""A plugin with a planted fault, and a model on which it shows, for the tests of verification."""

from __future__ import annotations

from pathlib import Path

from fuseline.engine.model import Model

PLUGIN = '''
import onnx_ir as ir
import numpy as np
from fuseline.engine.pass_ import Pass

class DoubleToAdd(Pass):
    """x · 2 → x + x, except where the planted fault makes it 2.02 · x"""
    name = "{name}"
    wrong_at: int = 3

    def run(self, model, rewriter):
        seen = 0
        for graph in list(model.graphs()):
            for node in list(graph):
                if node.op_type != "Mul" or node.inputs[1].name != "two":
                    continue
                if not rewriter.permit(node, "x · 2 → x + x"):
                    continue
                seen += 1
                x = node.inputs[0]
                if seen == self.wrong_at:
                    value = ir.tensor(np.array(2.02, np.float32))
                    wrong = ir.node("Constant", [], attributes={{"value": value}})
                    new = [wrong, ir.node("Mul", [x, wrong.outputs[0]])]
                else:
                    new = [ir.node("Add", [x, x])]
                rewriter.replace([node], new, [(node.outputs[0], new[-1].outputs[0])])
        return rewriter.changes

class ReluTwice(Pass):
    """Relu(Relu(x)) → Relu(x)"""
    name = "{name}-relu"

    def run(self, model, rewriter):
        for node in list(model.graph):
            inner = node.inputs[0].producer() if node.op_type == "Relu" else None
            if inner is not None and inner.op_type == "Relu" and rewriter.permit(node):
                rewriter.redirect(node.outputs[0], inner.outputs[0])
                rewriter.remove(node)
        return rewriter.changes
'''

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
agraph (float[N,4] x) => (float[N,4] y) <float two = {2}> {
    a = Sigmoid(x)  b = Mul(a, two)
    c = Tanh(b)     d = Mul(c, two)
    r = Relu(d)     s = Relu(r)
    e = Tanh(s)     f = Mul(e, two)
    g = Tanh(f)     h = Mul(g, two)
    y = Add(h, x)
}"""


def model() -> Model:
    return Model.from_text(MODEL)


def write_plugin(folder: Path, name: str) -> Path:
    path = folder / "my_passes.py"
    path.write_text(PLUGIN.format(name=name))
    return path
