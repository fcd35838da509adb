"""`fuseline passes new`: a pass that works, with its golden file, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuseline.engine.errors import FuselineError
from fuseline.tools.console import console

__all__ = ["new_command"]

_PASS = '''"""The pass `{name}`."""

from __future__ import annotations

import onnx_ir as ir

from fuseline.engine.patterns import Builder, Context, Fusion, Op, Term


class {class_}(Fusion):
    """Min(Max(x, low), high) → Clip(x, low, high)

    An example to begin with: put your own pattern in its place. Where the bounds are no constants in the
    right order, it leaves the graph alone and says so.
    """

    name = "{name}"

    def match(self, op: Op, x: Term, low: Term, high: Term) -> Term:
        return op.Min(op.Max(x, low), high)

    def check(self, low: ir.Value, high: ir.Value, context: Context) -> str | None:
        """None accepts the match; a text says why not."""
        bounds = context.scalar(low), context.scalar(high)
        if None in bounds:
            return "the bounds are not both constant numbers"
        return None if bounds[0] <= bounds[1] else f"the bounds are {{bounds[0]:g}} and {{bounds[1]:g}}"

    def replace(self, op: Builder, x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
        return op.Clip(x, low, high)
'''

_GOLDEN = """// RUN: {name},remove-unused
// CASE: positive
g (float[N] x) => (float[N] y) <float zero = {{0}}, float six = {{6}}> {{ a = Max(x, zero) y = Min(a, six) }}
// EXPECT:
g (float[N] x) => (float[N] y)
   <float six =  {{6}}, float zero =  {{0}}>
{{
   y = Clip (x, zero, six)
}}

// CASE: swapped_operands
g (float[N] x) => (float[N] y) <float zero = {{0}}, float six = {{6}}> {{ a = Max(zero, x) y = Min(six, a) }}
// EXPECT:
g (float[N] x) => (float[N] y)
   <float six =  {{6}}, float zero =  {{0}}>
{{
   y = Clip (x, zero, six)
}}

// CASE: bounds_in_the_wrong_order
g (float[N] x) => (float[N] y) <float zero = {{0}}, float six = {{6}}> {{ a = Max(x, six) y = Min(a, zero) }}
// EXPECT-UNCHANGED: the bounds are 6 and 0

// CASE: used_elsewhere
g (float[N] x) => (float[N] y, float[N] z) <float zero = {{0}}, float six = {{6}}>
{{ a = Max(x, zero) y = Min(a, six) z = Neg(a) }}
// EXPECT-UNCHANGED: used
"""


def new_command(
    name: Annotated[str, typer.Argument(help="The name of the pass, such as fuse-clamp.")],
    folder: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the two files go.")
    ] = Path("."),
) -> None:
    """Write a pass that works and its golden file; `fuseline passes test` runs them."""
    from fuseline.engine.declarations import check_name
    from fuseline.engine.outputs import check_output_folder
    from fuseline.engine.registry import registry

    check_name(name)
    if name in registry:
        raise FuselineError(f"{name!r} is taken: {registry.provider(name)}", hint="choose another name")
    check_output_folder(folder)
    stem = name.replace("-", "_")
    class_ = "".join(word.capitalize() for word in name.split("-"))
    files = {folder / f"{stem}.py": _PASS, folder / f"{stem}.onnxtxt": _GOLDEN}
    for path in files:
        if path.exists():
            raise FuselineError(f"{path} is there already", hint="choose another name, or remove it yourself")
    for path, text in files.items():
        path.write_text(text.format(name=name, class_=class_), encoding="utf-8")
        console.print(f"wrote {path}")
    script = folder / f"{stem}.py"
    console.print("next:")
    console.print(f"  fuseline passes test {script}")
    console.print(
        f"  fuseline run MODEL.onnx -o OUT.onnx --plugin {script} --pipeline {name},remove-unused "
        "--verify outputs --dump DIR",
        soft_wrap=True,
    )
