"""Measures which element types the kernels of ONNX Runtime take, and writes `engine/operators/support.json`.

One node after the other is loaded, for every version and element type, on the installed ONNX Runtime 1.19.2
and on the newest stock one in an environment of its own. As a program in that environment,
`python operator_types.py PROBES` prints for each probe whether its model loads.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

__all__ = ["decoded", "loads", "main", "probes"]

_OLDEST, _NEWEST = 7, 21
_IR_VERSION = 10
_PREFERRED = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(bool)", "tensor(uint8)")
_REQUIRED: dict[str, Any] = {"equation": "i->i", "to": 1, "axis": 0, "mode": "nearest"}
_BY_KIND = {"INT": 1, "INTS": [1, 1], "FLOAT": 1.0, "FLOATS": [1.0], "STRING": "", "STRINGS": [""]}
_NO_KERNEL = ("Could not find an implementation", "NOT_IMPLEMENTED", "Type Error", "is invalid")
_SINGLE, _OPTIONAL = (getattr(onnx.defs.OpSchema.FormalParameterOption, n) for n in ("Single", "Optional"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probes", nargs="?", type=Path, help="run these probes here and print the answers")
    parser.add_argument("--first", type=int, default=0, help="the first probe to run")
    parser.add_argument("--stock", type=Path, default=Path(".venv-stock"), help="the stock environment")
    parser.add_argument("--output", type=Path, default=Path("engine/operators/support.json"))
    options = parser.parse_args(arguments)
    if options.probes is not None:
        _answer(json.loads(options.probes.read_text())[options.first :])
        return 0
    from fuseline.tools.campaigns.stock import environment

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "probes.json"
        asked = list(probes())
        file.write_text(json.dumps(asked))
        found = {
            name: _collected(asked, _run(python, file, len(asked)))
            for name, python in (("training", sys.executable), ("stock", environment(options.stock)))
        }
    options.output.write_text(_text(found))
    print({name: len(operators) for name, operators in found.items()}, "operators ->", options.output)
    return 0


def _run(python: str | Path, probes: Path, count: int) -> list[bool | None]:
    """The answers to all probes; one that ends the process (ONNX Runtime has such) stays unanswered."""
    answers: list[bool | None] = []
    while len(answers) < count:
        command = [python, __file__, probes, "--first", str(len(answers))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answers.extend(json.loads(line) for line in done.stdout.split())
        if done.returncode:
            answers.append(None)
    return answers


def _answer(probes: list[dict[str, Any]]) -> None:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level, settings.intra_op_num_threads = 4, 1
    for probe in probes:
        print(json.dumps(loads(onnxruntime, settings, decoded(probe))), flush=True)


def decoded(probe: dict[str, Any]) -> bytes:
    return base64.b64decode(probe["model"])


def loads(onnxruntime: Any, settings: Any, model: bytes) -> bool | None:
    """None where the model is refused for another reason than its operator and types."""
    try:
        onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises a dozen unrelated types
        return False if any(words in str(error) for words in _NO_KERNEL) else None
    return True


def _collected(probes: list[dict[str, Any]], answers: list[bool | None]) -> dict[str, dict[int, list[str]]]:
    """Operator → version → types; operators with an unclear answer are left out."""
    found: dict[str, dict[int, list[str]]] = {}
    unclear = {p["operator"] for p, a in zip(probes, answers, strict=True) if a is None}
    for probe, answer in zip(probes, answers, strict=True):
        if probe["operator"] not in unclear:
            types = found.setdefault(probe["operator"], {}).setdefault(probe["since"], [])
            types.extend([probe["type"]] if answer else [])
    return {operator: _changes(versions) for operator, versions in found.items()}


def _changes(versions: dict[int, list[str]]) -> dict[int, list[str]]:
    """Only the versions in which something else holds than before."""
    made: dict[int, list[str]] = {}
    for since in sorted(versions):
        if not made or sorted(made[max(made)]) != sorted(versions[since]):
            made[since] = versions[since]
    return made


def _text(found: dict[str, dict[str, dict[int, list[str]]]]) -> str:
    """One line an operator, so that a difference can be read."""
    parts = []
    for runtime, operators in found.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps({str(s): ' '.join(t) for s, t in operators[name].items()})}"
            for name in sorted(operators)
        ]
        parts.append(f"{json.dumps(runtime)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


# -- probes


def probes() -> Iterator[dict[str, Any]]:
    from fuseline.engine.operators import records

    standard = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated]
    contrib = [o.declared for o in records() if o.domain == "com.microsoft" and o.declared is not None]
    for schema in (*standard, *contrib):
        if not _plain(schema) or not _holds(schema):
            continue
        main_type = next((i.type_str for i in schema.inputs if len(i.types) > 1), None)
        for element in _element_types(schema, main_type):
            name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
            model = _model(schema, main_type, element).SerializeToString()
            yield {
                "operator": name,
                "since": schema.since_version,
                "type": element,
                "model": base64.b64encode(model).decode(),
            }


def _holds(schema: onnx.defs.OpSchema) -> bool:
    """Whether it is the operator's schema in some opset of those that are used."""
    opset = max(schema.since_version, _OLDEST)
    if schema.domain or opset > _NEWEST:
        return bool(schema.domain)
    return onnx.defs.get_schema(schema.name, opset).since_version == schema.since_version


def _kind(attribute: onnx.defs.OpSchema.Attribute) -> str:
    return str(attribute.type).rpartition(".")[2]


def _plain(schema: onnx.defs.OpSchema) -> bool:
    """Whether it has tensors only, and no graphs."""
    kinds = {t for port in (*schema.inputs, *schema.outputs) for t in port.types}
    graphs = any(_kind(a).startswith("GRAPH") for a in schema.attributes.values())
    return bool(schema.inputs) and not graphs and all(k.startswith("tensor(") for k in kinds)


def _element_types(schema: onnx.defs.OpSchema, main_type: str | None) -> list[str]:
    listed = next((i.types for i in schema.inputs if i.type_str == main_type), None)
    if listed is None:
        listed = schema.inputs[0].types
    names = sorted(t.removeprefix("tensor(").removesuffix(")") for t in listed)
    return [n for n in names if n != "string" and not n.startswith("complex")]


def _model(schema: onnx.defs.OpSchema, main_type: str | None, element: str) -> onnx.ModelProto:
    names, values = [], []
    wanted = f"tensor({element})"
    # What is a function is expanded by the runtime, to the more nodes the more inputs it has.
    function = any(getattr(schema, f"has_{kind}function") for kind in ("", "context_dependent_"))
    for index, port in enumerate(schema.inputs):
        if port.option == _OPTIONAL and not (function and port.type_str == main_type):
            names.append("")
            continue
        kind = wanted if port.type_str == main_type or (main_type is None and not index) else ""
        # Kernels of 8-bit products have few pairs of types; both alike is one of them.
        kind = kind or (wanted if element in ("int8", "uint8") and wanted in port.types else "")
        kind = kind or next((p for p in _PREFERRED if p in port.types), sorted(port.types)[0])
        names.append(f"i{index}")
        values.append(helper.make_tensor_value_info(names[-1], _number(kind), None))
    while names and not names[-1]:
        names.pop()
    outputs = [f"o{i}" for i, port in enumerate(schema.outputs) if port.option == _SINGLE or i == 0]
    node = helper.make_node(schema.name, names, outputs, domain=schema.domain)
    for name, attribute in schema.attributes.items():
        if attribute.required:
            value = _REQUIRED.get(name, _BY_KIND.get(_kind(attribute)))
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))
    graph = helper.make_graph([node], "probe", values, [helper.make_empty_tensor_value_info(outputs[0])])
    version = 17 if schema.domain else max(schema.since_version, _OLDEST)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=opsets)


def _number(kind: str) -> int:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return int(onnx.TensorProto.DataType.Value(name.upper()))


if __name__ == "__main__":
    sys.exit(main())
