"""The page of the command line, from the commands themselves; the site's build writes it (``docs/conf.py``)."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

from fedfibos.cli.app import app

HEAD = """# Command line

Generated from the commands. `fedfibos COMMAND --help` prints the same.

## Exit codes

- **0**: done.
- **1**: failed. It began and could not go on: every upload of a round was rejected, a worker died, the disk is full,
  another process has the run directory. The same command may succeed later.
- **2**: refused. The command line, the experiment, its data, its model or the run directory is not what is wanted.
  Nothing was trained. The same command gives the same answer until something is changed.
- **3**: done, but all clients of a capacity were rejected in three or more rounds in a row of those that it took part
  in. The last lines, and `rejected_classes` in `final.json`, name the capacity, the rounds and the reason. Its
  accuracies are of submodels that nobody trained.
- **130**: interrupted by Ctrl-C or SIGTERM. A run writes a checkpoint first and says how to go on.
- **141**: the reader of the output is gone, as in `fedfibos run ... | head -1`. A run that has finished rounds writes a
  checkpoint first.

`sweep` ends with 0 where every run has its results, with 2 where all those without results were refused, and with 1
otherwise.

An error is one line on standard error, and so is each warning. With `FEDFIBOS_TRACEBACK=1` in the environment an error
is a traceback: attach it to a report of a fault.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(name, command) for name, command in _commands("fedfibos", _root()))])


def _root() -> click.Command:
    return typer.main.get_command(app)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its whole name."""
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _commands(f"{name} {part}", inner)
    else:
        yield name, command


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    table = "\n".join(["| | meaning |", "|---|---|", *rows])
    return f"## {name}\n\n{' '.join((command.help or '').split())}\n\n    {usage}\n\n{table}\n"


def _row(parameter: click.Parameter, context: click.Context) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or "--help" in record[0]:
        return None
    name, meaning = (" ".join(text.split()).replace("|", "\\|").replace("*", "\\*") for text in record)
    return f"| `{name}` | {meaning} |"
