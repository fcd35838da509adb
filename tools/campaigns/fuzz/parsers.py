"""Broken files of every kind that is read: a clear message each time, never a traceback, a crash or a hang.

    python -m fuseline.tools.campaigns.fuzz.parsers [--seed 0] [--count 4000]

Good files are mutated byte by byte and piece by piece, and read the way the commands read them.
"""

from __future__ import annotations

import argparse
import collections
import io
import random
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime  # noqa: F401  (workers are forked: what is imported here they need not import)

import fuseline.passes  # noqa: F401
from fuseline.engine.errors import FuselineError
from fuseline.engine.inputs import load_npz
from fuseline.engine.model import Model
from fuseline.engine.observers import load_expectations
from fuseline.engine.parameters import Parameter
from fuseline.engine.pipeline import Pipeline
from fuseline.engine.registry import Registry
from fuseline.tools.campaigns.fuzz.cases import draw_case
from fuseline.tools.campaigns.fuzz.judge import Verdict
from fuseline.tools.campaigns.fuzz.messages import mutate_message
from fuseline.tools.campaigns.fuzz.workers import Pool
from fuseline.tools.console import console

__all__ = ["KINDS", "campaign", "mutate", "read"]

_TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
agraph (float[N,4] x, int64[N] i) => (float[N,4] y) <float[4,4] w, float[2] c = {1, 2.5}> {
    a = MatMul(x, w)  b = Relu(a)
    y = Softmax<axis = -1>(b)
}"""
_YAML = """description: Fewer nodes.
passes:
  - infer-shapes
  - repeat: {until: unchanged, at-most: 3}
    passes: [fold-constants, eliminate-identity]
  - fuse-layer-norm: {any-opset: true}
expect: {Relu: 1, LayerNormalization: 0}
"""
_PIPELINE = "infer-shapes,repeat{until=unchanged,at-most=3}(fold-constants),fuse-layer-norm{any-opset=true}"
_PLUGIN = '''"""A plugin."""
from fuseline.engine.patterns import Fusion

class FuseFuzzed(Fusion):
    """Neg(Neg(x)) → Identity(x)"""
    name = "fuse-fuzzed"
    depth: int = 2

    def match(self, op, x):
        return op.Neg(op.Neg(x))

    def replace(self, op, x):
        return op.Identity(x)
'''
_ODD = (
    b"\xff",
    b"\xc3\x28",
    b"\x00",
    b"\n",
    b"{",
    b"}",
    b":",
    b"-1",
    b"99999999999999999999",
    b"'",
    b"\\",
    b"\xed\xa0\x80",
)


def _model(path: Path) -> None:
    model = Model.load(path)
    Pipeline.resolve("inference-O1").run(model).model.save(path.with_suffix(".out"))


def _model_text(path: Path) -> None:
    Model.from_text(path.read_bytes().decode("utf-8", "surrogateescape")).to_proto()


def _arrays(path: Path) -> None:
    load_npz(
        path, Model.from_text(_TEXT.replace("<float[4,4] w, float[2] c = {1, 2.5}>", "").replace("w)", "x)"))
    )


def _plugin(path: Path) -> None:
    Registry().load_plugin(path)


KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "model": (".onnx", _model),
    "text": (".onnxtxt", _model_text),
    "pipeline": (".txt", lambda p: Pipeline.parse(p.read_bytes().decode("utf-8", "surrogateescape"))),
    "yaml": (".yaml", lambda p: Pipeline.resolve(str(p))),
    "arrays": (".npz", _arrays),
    "expectations": (".yaml", load_expectations),
    "plugin": (".py", _plugin),
}


@cache
def _good(kind: str) -> tuple[bytes, ...]:
    """Files that are read without complaint."""
    if kind == "model":
        return (*(draw_case(3, i).model for i in range(30)), *(_with_metadata() for _ in range(4)))
    if kind == "arrays":
        stream = io.BytesIO()
        np.savez(stream, x=np.zeros((3, 4), np.float32), i=np.zeros(3, np.int64))
        return (stream.getvalue(),)
    texts = {
        "text": _TEXT,
        "pipeline": _PIPELINE,
        "yaml": _YAML,
        "expectations": "Relu: 1\nGelu: 0\n",
        "plugin": _PLUGIN,
    }
    return (texts[kind].encode(),)


def _with_metadata() -> bytes:
    """A model with a parameter map and facts."""
    model = Model.from_text(_TEXT.replace("float[4,4] w,", "float[2,2] w = {1, 2, 3, 4},"))
    model.parameters.add(Parameter("linear.weight", "w", (2, 2)))
    model.transpose_parameter(model.graph.initializers["w"], (1, 0))
    model.facts.origin = replace(model.facts.origin, architecture="Made")
    return bytes(model.to_proto().SerializeToString())


def mutate(chance: random.Random, kind: str) -> bytes:
    """A good file with one to four things wrong."""
    if kind == "model" and chance.random() < 0.7:
        return mutate_message(chance, chance.choice(_good(kind)))
    data = bytearray(chance.choice(_good(kind)))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        length = chance.randint(1, 8)
        how = chance.randrange(7)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[at : at + length]
        elif how == 2:
            data[at:at] = chance.choice(_ODD)
        elif how == 3:
            data[at : at + length] = chance.randbytes(length)
        elif how == 4:
            other = chance.randrange(len(data) + 1)
            data[at:at] = data[other : other + length * 4]
        elif how == 5 and chance.random() < 0.3:
            del data[at:]
        else:
            data[at : at + 1] = chance.choice(_ODD)[:1]
    return bytes(data)


def read(task: tuple[str, bytes], announce: Callable[[str], None]) -> Verdict:
    """Read the file; anything but success and a FuselineError is a finding."""
    kind, content = task
    suffix, reader = KINDS[kind]
    announce(kind)
    with tempfile.TemporaryDirectory(prefix="fuseline-") as folder:
        path = Path(folder) / f"broken{suffix}"
        path.write_bytes(content)
        try:
            reader(path)
        except FuselineError as error:
            return Verdict("refused", str(error))
        except RecursionError:
            return Verdict("error", "RecursionError", kind)
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return Verdict(
                "error",
                f"{type(error).__name__}: {error}",
                f"{kind} {Path(where.filename).name}:{where.lineno}",
            )
    return Verdict("ok")


def _tasks(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(f"{seed}/parsers")
    kinds = [*KINDS, "model", "model"]
    for _ in range(count):
        kind = chance.choice(kinds)
        yield kind, mutate(chance, kind)


def campaign(seed: int, count: int, *, processes: int = 2) -> dict[tuple[str, str, str], tuple[str, bytes]]:
    """The first file of each kind of finding."""
    found: dict[tuple[str, str, str], tuple[str, bytes]] = {}
    counts: collections.Counter[str] = collections.Counter()
    pool = Pool(read, processes)
    try:
        for task, verdict in pool.run(_tasks(seed, count)):
            counts[verdict.status] += 1
            if verdict.found and verdict.signature not in found:
                found[verdict.signature] = task
                console.print(f"{task[0]}: {verdict.status} {verdict.blame}: {verdict.message[:300]}")
    finally:
        pool.close()
    console.print(", ".join(f"{n} {status}" for status, n in counts.most_common()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=4000)
    arguments = parser.parse_args()
    return 1 if campaign(arguments.seed, arguments.count) else 0


if __name__ == "__main__":
    raise SystemExit(main())
