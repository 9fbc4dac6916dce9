"""The command line as a whole: its commands, and what a command's end comes to (``exit_codes``).

Errors are one line on standard error; with FEDFIBOS_TRACEBACK=1 they are tracebacks. What needs torch is imported by
the command that needs it, so ``--help`` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated

import click
import typer

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.cli import checkpoint_commands, lookup_commands, packing, training_commands
from fedfibos.cli.code_folders import search_here
from fedfibos.cli.exit_codes import FAILED, INTERRUPTED, READER_GONE, exit_code, in_words
from fedfibos.cli.flower_commands import flower_app
from fedfibos.cli.terminal import drop_output, fail, flush_output, log_on_stderr
from fedfibos.common.user_code import users_frame

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
            code = _run(sys.argv[1:] if arguments is None else list(arguments))
        flush_output()
    except click.ClickException as error:
        return fail(_usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # as in ``fedfibos run ... | head -1``
        drop_output()
        return READER_GONE
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # Rich's way, where Typer prints help with it
            drop_output()
            return READER_GONE
        if users_frame(stop) is None:
            return fail(f"the experiment's own code ended the program: SystemExit({stop.code!r})", FAILED)
        return fail(in_words(stop), FAILED)
    except Exception as error:
        if (known := exit_code(error)) is None or os.environ.get("FEDFIBOS_TRACEBACK"):
            raise
        return fail(in_words(error), known)
    return code


def _usage(error: click.ClickException) -> str:
    """What is wrong with the words of a command; the nearest command once, where Click and Typer both name it."""
    text = re.sub(r"( Did you mean [^?]*\?)\1+", r"\1", error.format_message())
    if text.startswith("No such command") and "Did you mean" not in text:
        return f"{text} fedfibos --help lists them"
    return text


def _run(arguments: list[str]) -> int:
    """Parse and carry out; what goes wrong is raised, which Click's own ``main`` would answer in ways of its own."""
    command = _command()
    if wrong := next((text for text in arguments if "\0" in text), None):
        raise click.UsageError(f"an argument must not have a null character, got {wrong[:200]!r}")
    try:
        with command.make_context("fedfibos", arguments) as context:
            return int(command.invoke(context) or 0)
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code


@cache  # Typer reads the signature of every command anew
def _command() -> click.Command:
    return typer.main.get_command(app)


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
    packing.pack,
    lookup_commands.report,
    lookup_commands.watch,
    checkpoint_commands.audit,
    checkpoint_commands.evaluate,
    checkpoint_commands.export,
    checkpoint_commands.bundle,
    checkpoint_commands.diagnose,
    lookup_commands.methods,
    lookup_commands.plan,
    lookup_commands.axes,
    lookup_commands.settings,
    lookup_commands.data,
    training_commands.demo,
):
    app.command()(command)
app.add_typer(flower_app, name="flower")
