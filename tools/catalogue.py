"""The catalogue of passes, made from their declarations: for the command line, and as docs/passes.md.

python -m fuseline.tools.catalogue            writes docs/passes.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuseline.engine import options
from fuseline.engine.files import atomic_write
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline import Pipeline, ready_pipelines
from fuseline.engine.registry import registry

__all__ = ["describe", "markdown"]

PAGE = Path("docs/passes.md")
_OWN = "fuseline.passes."
_INTRODUCTION = """# Passes and ready pipelines

Made by `make docs` from the declarations; `fuseline passes show NAME` prints the same.
"""


def describe(declared: type[Pass]) -> dict[str, Any]:
    """Everything that a pass declares."""
    return {
        "name": declared.name,
        "summary": declared.summary(),
        "doc": inspect.getdoc(declared),
        "phase": declared.phase,
        "requires": [p.value for p in declared.requires],
        "forbids": [p.value for p in declared.forbids],
        "ensures": [p.value for p in declared.ensures],
        "invalidates": [p.value for p in declared.invalidates],
        "counterpart": declared.counterpart,
        "provider": registry.provider(declared.name),
        "options": [_option(declared, field) for field in dataclasses.fields(declared)],  # type: ignore[arg-type]
    }


def _option(declared: type[Pass], field: dataclasses.Field[Any]) -> dict[str, Any]:
    kind = options.field_types(declared)[field.name]
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    plain = "choice" if choices else getattr(kind, "__name__", str(kind))
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    return {
        "name": options.kebab(field.name),
        "type": str(kind).replace("typing.", "") if typing.get_origin(kind) and not choices else plain,
        "choices": list(choices),
        "default": None if default is dataclasses.MISSING else default,
        "help": _help(declared, field.name),
    }


def _help(declared: type[Pass], name: str) -> str:
    """The text below a field, in the class that declares it."""
    for owner in declared.__mro__:
        if name not in vars(owner).get("__annotations__", {}):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for line, below in zip(body.body, body.body[1:], strict=False):
            named = isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            if named and line.target.id == name and isinstance(below, ast.Expr):  # type: ignore[attr-defined]
                return " ".join(str(ast.literal_eval(below.value)).split())
    return ""


def markdown() -> str:
    """The whole page."""
    own = [p for p in registry if p.__module__.startswith(_OWN)]
    groups = sorted({p.__module__.split(".")[2] for p in own})
    parts = [_INTRODUCTION, "## Ready pipelines\n", *_pipelines()]
    for group in groups:
        parts.append(f"## {group.capitalize()}\n")
        for declared in own:
            if declared.__module__.split(".")[2] == group:
                parts.append("\n".join(_section(describe(declared))))
    return "\n".join(parts)


def _pipelines() -> Iterator[str]:
    for name, path in sorted(ready_pipelines().items()):
        if path.parent.parent.name == "passes":
            pipeline = Pipeline.from_yaml(path)
            used = list(dict.fromkeys(p.name for p in pipeline.passes()))
            yield f"### {name}\n\n{pipeline.description}\n\n{', '.join(f'`{n}`' for n in used)}\n"


def _section(about: dict[str, Any]) -> Iterator[str]:
    yield f"### {about['name']}\n"
    yield f"{about['doc']}\n"
    for key in ("phase", "requires", "forbids", "ensures", "invalidates", "counterpart"):
        value = about[key]
        if value and value != "any":
            yield f"- {key}: {', '.join(value) if isinstance(value, list) else value}"
    for option in about["options"]:
        choices = f", one of {', '.join(map(options.render, option['choices']))}" if option["choices"] else ""
        text = f": {option['help']}" if option["help"] else ""
        default = options.render(option["default"])
        yield f"- option `{option['name']}` ({option['type']}{choices}; default {default}){text}"
    yield ""


def main() -> int:
    with atomic_write(PAGE) as path:
        path.write_text(markdown())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
