"""`fuseline doctor`: what is installed, whether it fits together, and what to do if not."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from fuseline.tools.console import console, print_json

__all__ = ["doctor_command"]

# Package → (specifier that fits, what it is needed for, required).
EXPECTED: dict[str, tuple[str, str, bool]] = {
    "onnx": (">=1.23,<1.24", "the format itself", True),
    "onnx-ir": (">=1.1,<1.2", "the graph in memory", True),
    "onnxscript": (">=0.7,<0.8", "export and opset conversion", True),
    "numpy": (">=2.0", "arrays", True),
    "networkx": (">=3.3", "graph algorithms", True),
    "torch": ("==2.13.*", "export and training", False),
    "transformers": (">=5.22,<6", "export and the Trainer", False),
    "accelerate": (">=1.10", "the Trainer", False),
}
RUNTIMES = ("onnxruntime-training-cpu", "onnxruntime-training", "onnxruntime", "onnxruntime-gpu")


@dataclass
class Finding:
    what: str
    found: str
    state: str
    advice: str = ""


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check that what is installed fits together."""
    findings = [_python(), *map(_package, EXPECTED), _runtime(), _kernels()]
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        _show(findings)
    if any(f.state == "wrong" for f in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    colours = {"fine": "green", "missing": "yellow", "wrong": "red"}
    table = Table("", "found", "state", "what to do")
    for f in findings:
        table.add_row(f.what, f.found, Text(f.state, colours[f.state]), f.advice)
    console.print(table)


def _python() -> Finding:
    version = platform.python_version()
    fits = (3, 11) <= sys.version_info[:2] <= (3, 12)
    return Finding("python", version, "fine" if fits else "wrong", "" if fits else "use Python 3.11 or 3.12")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str) -> Finding:
    from packaging.specifiers import SpecifierSet

    specifier, purpose, required = EXPECTED[name]
    version = _version(name)
    install = f"pip install '{name}{specifier}'"
    if version is None:
        return Finding(name, "–", "wrong" if required else "missing", f"{install} ({purpose})")
    if version.split("+")[0] not in SpecifierSet(specifier):
        return Finding(name, version, "wrong", f"{install} ({purpose})")
    return Finding(name, version, "fine")


def _runtime() -> Finding:
    found = {name: v for name in RUNTIMES if (v := _version(name))}
    label = ", ".join(f"{n} {v}" for n, v in found.items()) or "–"
    what = "onnxruntime"
    if len(found) > 1:
        advice = f"these share one module name: uninstall all, then install one ({RUNTIMES[0]}==1.19.2)"
        return Finding(what, label, "wrong", advice)
    if not found:
        return Finding(what, label, "wrong", f"pip install {RUNTIMES[0]}==1.19.2")
    name, version = next(iter(found.items()))
    if name in RUNTIMES[2:]:
        advice = f"runs finished graphs; to build training graphs: pip install {RUNTIMES[0]}==1.19.2 instead"
        return Finding(what, label, "missing", advice)
    fits = version == "1.19.2"
    return Finding(what, label, "fine" if fits else "wrong", "" if fits else f"pip install {name}==1.19.2")


def _kernels() -> Finding:
    from fuseline.kernels import loader

    path = loader.library_path()
    if path is not None:
        return Finding("native kernels", path.name, "fine")
    advice = "reinstall fuseline on a machine with a C++ compiler; training uses stock operators until then"
    return Finding("native kernels", "–", "missing", advice)
