"""The command line as a whole: its commands, and what a command's end comes to (``exit_codes``).

Errors are one line on standard error; with FEDFIBOS_TRACEBACK=1 they are tracebacks. What needs torch is imported by
the command that needs it, so ``--help`` answers at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import click
import typer

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.cli import checkpoint_commands, lookup_commands, training_commands
from fedfibos.cli.code_folders import search_here
from fedfibos.cli.exit_codes import INTERRUPTED, exit_code
from fedfibos.cli.flower_commands import flower_app
from fedfibos.cli.terminal import fail, log_on_stderr

app = typer.Typer(
    help="Federated learning across clients of unequal capacity.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    keep_freed_memory()
    search_here()
    try:
        with log_on_stderr():
            code = app(args=None if arguments is None else list(arguments), prog_name="fedfibos", standalone_mode=False)
    except click.ClickException as error:
        return fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except Exception as error:
        if (known := exit_code(error)) is None or os.environ.get("FEDFIBOS_TRACEBACK"):
            raise
        return fail(str(error), known)
    return int(code or 0)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"fedfibos {version('fedfibos')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for command in (
    training_commands.run,
    training_commands.sweep,
    lookup_commands.report,
    checkpoint_commands.audit,
    checkpoint_commands.evaluate,
    checkpoint_commands.export,
    checkpoint_commands.diagnose,
    lookup_commands.methods,
    lookup_commands.settings,
    lookup_commands.data,
    training_commands.demo,
):
    app.command()(command)
app.add_typer(flower_app, name="flower")
