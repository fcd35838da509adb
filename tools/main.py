"""The command line `fuseline`: one file per command, wired here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fuseline.engine.errors import FuselineError, GateFailed
from fuseline.tools.commands.bench import bench_command
from fuseline.tools.commands.bisect import bisect_command
from fuseline.tools.commands.diff import diff_command
from fuseline.tools.commands.doctor import doctor_command
from fuseline.tools.commands.explain import explain_command
from fuseline.tools.commands.export import export_command
from fuseline.tools.commands.golden import golden_command
from fuseline.tools.commands.new_pass import new_command
from fuseline.tools.commands.passes import list_command, show_command
from fuseline.tools.commands.plan import plan_command
from fuseline.tools.commands.profile import profile_command
from fuseline.tools.commands.quantize import quantize_command
from fuseline.tools.commands.run import run_command
from fuseline.tools.commands.show import show_model_command
from fuseline.tools.commands.train import train_command
from fuseline.tools.commands.view import view_command
from fuseline.tools.console import fail

__all__ = ["app", "main"]

app = typer.Typer(
    name="fuseline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Transform, verify, train and deploy ONNX graphs: every pass explained, diffed and reversible.",
)
passes = typer.Typer(no_args_is_help=True, help="The catalogue of passes.")


def _version(wanted: bool) -> None:
    if wanted:
        import fuseline

        typer.echo(f"fuseline {fuseline.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Transform, verify, train and deploy ONNX graphs: every pass explained, diffed and reversible."""


def _add(group: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    group.command(name)(command)


_add(app, "export", export_command)
_add(app, "run", run_command)
_add(app, "diff", diff_command)
_add(app, "bisect", bisect_command)
_add(app, "plan", plan_command)
_add(app, "bench", bench_command)
_add(app, "profile", profile_command)
_add(app, "train", train_command)
_add(app, "show", show_model_command)
_add(app, "view", view_command)
_add(app, "quantize", quantize_command)
_add(app, "doctor", doctor_command)
_add(passes, "list", list_command)
_add(passes, "show", show_command)
_add(passes, "explain", explain_command)
_add(passes, "new", new_command)
_add(passes, "test", golden_command)
app.add_typer(passes, name="passes")


def main() -> None:
    """Exit codes: 0 fine, 1 a check failed, 2 bad input or usage."""
    try:
        app()
    except GateFailed as error:
        _leave(error, 1)
    except FuselineError as error:
        _leave(error, 2)
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # A disk that fills up, a folder that goes away: what is checked at the beginning can change.
        _leave(FuselineError(f"{error.filename or 'a file'}: {error.strerror or error}"), 2)


def _leave(error: FuselineError, code: int) -> None:
    notes = [f"  {note}" for note in getattr(error, "__notes__", ())]
    fail("\n".join([str(error), *notes]))
    sys.exit(code)


if __name__ == "__main__":
    main()
