"""`make site` writes the pages of commands and operators from what the code declares.

python -m fuseline.tools.reference FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fuseline.engine.files import atomic_write
from fuseline.engine.operators import Operator, Trait, records
from fuseline.engine.operators.gradient import BuiltIn, Gradient, Prepared
from fuseline.kernels import DOMAIN, OPERATORS
from fuseline.kernels.operator import Port
from fuseline.kernels.records import register_records

__all__ = ["commands", "operators"]


def commands() -> str:
    """The page of the command line."""
    from fuseline.tools.main import app

    parts = [
        "# Commands\n",
        "Written from what `fuseline COMMAND --help` prints.\n",
    ]
    parts.append("Exit codes: 0 fine, 1 a check failed (different, drifted, missed), 2 bad input or usage.\n")
    for path, command in _tree(typer.main.get_command(app), ("fuseline",)):
        parts.append("\n".join(_command(path, command)))
    return "\n".join(parts)


def _tree(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from _tree(inner, (*path, name))
        else:
            yield (*path, name), inner


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    words = " ".join((p.metavar or p.name).upper() for p in arguments)
    yield f"## {' '.join(path)}\n"
    yield f"`{' '.join((*path, words)).strip()} [OPTIONS]`\n"
    yield f"{' '.join((command.help or '').split())}\n"
    yield "| | | default |\n|---|---|---|"
    for argument in arguments:
        yield _row(f"`{(argument.metavar or argument.name).upper()}`", argument.help, "")
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        yield _row(names, option.help, "required" if option.required else _default(option))
    yield ""


def _default(option: Any) -> str:
    value = option.default
    if value is None or callable(value) or isinstance(value, bool) or not str(value) or value == []:
        return ""
    return f"`{value}`" if isinstance(value, (str, int, float)) else ""


def _row(*cells: str | None) -> str:
    return "| " + " | ".join(" ".join((cell or "").split()).replace("|", "\\|") for cell in cells) + " |"


def operators() -> str:
    """The page of operators: ours with their ports, then what is known of everybody else's."""
    register_records()
    parts = ["# Operators\n", "Written from the records that passes, shapes, gradients and sessions ask.\n"]
    parts.append("## Native operators\n")
    parts.append(f"Domain `{DOMAIN}`; a shape's letters are sizes, equal letters equal sizes.\n")
    parts.append("| operator | inputs | outputs | gradient |\n|---|---|---|---|")
    for name, operator in sorted(OPERATORS.items()):
        ports = ("; ".join(map(_port, side)) for side in (operator.inputs, operator.outputs))
        parts.append(_row(f"`{name}`", *ports, "yes" if operator.gradient else ""))
    foreign = sorted((r for r in records() if r.domain != DOMAIN), key=lambda r: (r.domain, r.name))
    for domain in dict.fromkeys(r.domain for r in foreign):
        parts.append(f"\n## {domain or 'ai.onnx'}\n")
        parts.append("| operator | traits | gradient | quantized |\n|---|---|---|---|")
        parts += [_record(r) for r in foreign if r.domain == domain]
    return "\n".join(parts) + "\n"


def _port(port: Port) -> str:
    shape = f" `{port.shape}`" if port.shape else ""
    kind = f" {port.type}" if port.type != "float" else ""
    return f"{port.name}{kind}{shape}{' …' if port.variadic else ''}{' (optional)' if port.optional else ''}"


def _record(operator: Operator) -> str:
    traits = ", ".join(str(t.name).lower() for t in Trait if t and operator.has(t))
    product = f"as {operator.quantizable.family}" if operator.quantizable is not None else ""
    return _row(f"`{operator.name}`", traits, _gradient(operator.gradient), product)


def _gradient(gradient: Gradient) -> str:
    if isinstance(gradient, BuiltIn):
        return "ONNX Runtime's"
    if isinstance(gradient, Prepared):
        return f"by `{gradient.by or 'prepare-for-gradient'}`"
    return "of our own" if gradient.exists else ""


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in (("commands", commands), ("operators", operators)):
        with atomic_write(folder / f"{name}.md") as path:
            path.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
