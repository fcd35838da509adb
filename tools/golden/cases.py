"""Golden files are cases in ONNX text, each with what a pipeline must make of it.

    // RUN: fuse-gelu,remove-unused          the pipeline, once at the top of the file
    // CASE: erf_gelu                        a test of its own
    // TRAINABLE: weight, bias               (optional) initializers that are trainable parameters
    // TYPES:                                (optional) intermediate types are part of the expectation
    // NO-RUN: why                           (optional) do not run the model
    // NATIVE: why                           (optional) the pipeline needs the native operators to be built
    // ONCE: why                             (optional) do not run the pipeline on its own result
    // TOLERANCE: 0.05                       (optional) how far results may be off, as a part of the largest
    agraph (float[N,4] x) => (float[N,4] y) { … }
    // EXPECT:                               the graph afterwards, or
    // EXPECT-UNCHANGED: part of the reason  the pass must leave it alone and say why, or a near miss must, or
    // EXPECT-UNCHANGED: (the reason)        it is no candidate at all, so nothing is said about it
    // UNLESS: this ==> that                 the change of the text with which it is one, TRAINABLE included,
                                             which is `nothing` where it is not given

A model without a `<ir_version…>` header gets the one below. Every case is also run before and after on
ONNX Runtime with its own optimisations off, and the pipeline is run again to see that nothing more changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx.parser

from fuseline.engine.errors import FuselineError
from fuseline.engine.files import read_text, write_text
from fuseline.engine.model import Model
from fuseline.engine.parameters import Parameter

__all__ = ["Case", "build", "parse", "parse_model", "read", "update"]

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
DIRECTIVE = re.compile(r"^// ([A-Z][A-Z-]*):[ ]?(.*)$")
_OF_A_CASE = (
    "EXPECT",
    "EXPECT-UNCHANGED",
    "TRAINABLE",
    "TYPES",
    "NO-RUN",
    "NATIVE",
    "ONCE",
    "TOLERANCE",
    "UNLESS",
)


@dataclass
class Case:
    name: str
    model: str
    directives: dict[str, str] = field(default_factory=dict)
    expected: str = ""


def read(path: Path) -> tuple[str, list[Case]]:
    """The pipeline and the cases of a file; what is wrong with it is an error that names the line."""
    try:
        pipeline, cases = parse(read_text(path, "golden file"))
    except ValueError as error:
        raise FuselineError(f"{path}: {error}") from error
    if not cases or not pipeline:
        missing = "CASE" if pipeline else "RUN"
        raise FuselineError(f"{path} has no '// {missing}:'")
    return pipeline, cases


def parse(text: str) -> tuple[str, list[Case]]:
    """The pipeline and the cases of a golden file."""
    pipeline, target = "", "model"
    cases: list[Case] = []
    for number, line in enumerate(text.splitlines(), 1):
        directive = DIRECTIVE.match(line)
        if directive is None:
            if cases and not line.startswith("//"):
                setattr(cases[-1], target, getattr(cases[-1], target) + line + "\n")
            elif line.strip() and not line.startswith("//"):
                raise ValueError(f"line {number}: text before the first '// CASE:'")
            continue
        key, value = directive[1], directive[2].strip()
        if key == "RUN":
            pipeline = value
        elif key == "CASE":
            cases.append(Case(value, ""))
            target = "model"
        elif cases and key in _OF_A_CASE:
            cases[-1].directives[key] = value
            target = "expected" if key.startswith("EXPECT") else target
        else:
            raise ValueError(f"line {number}: {line!r} is not a directive, or out of place")
    return pipeline, cases


def parse_model(text: str) -> onnx.ModelProto:
    text = text.strip()
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)


def build(case: Case) -> Model:
    """The model of a case before the pipeline."""
    model = Model.from_proto(parse_model(case.model))
    for name in filter(None, re.split(r"[,\s]+", case.directives.get("TRAINABLE", ""))):
        value = model.graph.initializers.get(name)
        tensor = value.const_value if value is not None else None
        if tensor is None:
            raise FuselineError(f"the case {case.name!r} has no initializer {name!r} to train")
        model.parameters.add(Parameter(name, name, tuple(tensor.shape.numpy()), str(tensor.numpy().dtype)))
    return model


def update(path: Path, made: Mapping[str, str]) -> None:
    """Write what was made into the cases' expectations."""
    write_text(path, _rewrite(path.read_text(encoding="utf-8"), made))


def _rewrite(text: str, updates: Mapping[str, str]) -> str:
    """The file with the expectation of each updated case replaced."""
    blocks = re.split(r"(?m)^(?=// CASE:)", text)
    for index, block in enumerate(blocks):
        name = block.split("\n", 1)[0].removeprefix("// CASE:").strip()
        if block.startswith("// CASE:") and name in updates:
            head = re.split(r"(?m)^// EXPECT:.*$", block)[0].rstrip("\n")
            blocks[index] = f"{head}\n// EXPECT:\n{updates[name]}\n\n"
    return "".join(blocks).rstrip("\n") + "\n"
