"""``fedfibos flower``: a Flower app to start from, and a demonstration on this machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedfibos.cli.exit_codes import CLASS_REJECTED
from fedfibos.runs.measures import measures_of

if TYPE_CHECKING:
    from fedfibos.flower.demo import Outcome

flower_app = typer.Typer(help="The same methods on real machines, over Flower.", no_args_is_help=True)


@flower_app.command("new")
def new(folder: Annotated[Path, typer.Argument(help="Folder to write the app to.")]) -> None:
    """Write a Flower app around your model and your data: a page of code, which runs as it is."""
    from fedfibos.flower.new import new_app

    for path in new_app(folder):
        print(path)
    print("next: put your model and data into fleet.py; docs/how-to/fleet.md has the commands that start it")


@flower_app.command("supernode", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def supernode(context: typer.Context) -> None:
    """Run flower-supernode with the options given, and say in one line why it could not join."""
    from fedfibos.flower.supernode import run_supernode

    try:
        code, why = run_supernode(context.args)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if why is not None:
        raise click.ClickException(f"the SuperNode ended: {why}")
    raise typer.Exit(code)


@flower_app.command("gateway")
def gateway(
    folder: Annotated[Path, typer.Argument(help="Folder to write nginx's configuration to.")],
    certificates: Annotated[Path, typer.Option(help="Folder of ca.crt, server.pem and server.key.")] = Path(),
    listen: Annotated[str, typer.Option(help="HOST:PORT that devices reach.")] = "0.0.0.0:9093",
    superlink: Annotated[str, typer.Option(help="HOST:PORT of the SuperLink, on the loopback.")] = "127.0.0.1:9092",
) -> None:
    """Write the configuration of nginx in front of a SuperLink: devices may take part, and no stranger starts a run."""
    from fedfibos.flower.gateway import Gateway, nginx

    path = Gateway(listen, superlink, certificates).write(folder)
    print(f"{nginx() or 'nginx'} -e {path.with_name('error.log')} -c {path}")
    if nginx() is None:
        print("nginx is not installed here: on Debian, apt-get install nginx-light", file=sys.stderr)


@flower_app.command("demo")
def demo(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train.")] = 3,
    method: Annotated[str, typer.Option(help="A method of `fedfibos methods`.")] = "fedfibos",
    keep: Annotated[Path | None, typer.Option(help="Folder to keep app, run and logs in; default: none.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With TLS, keys and the gateway (needs nginx).")] = False,
) -> None:
    """Start a SuperLink and three SuperNodes of different capacity here, train the digits, and stop them all."""
    from fedfibos.common.validation import check_name
    from fedfibos.flower.certificates import CertificateError
    from fedfibos.flower.demo import CAPACITIES, fleet
    from fedfibos.flower.launch import LaunchError
    from fedfibos.methods import METHODS

    console = Console()
    try:
        check_name("method", method, METHODS)
        with _folder(keep) as folder, fleet(folder, secure=secure) as running:
            way = "TLS, keys and the gateway" if secure else "plain"
            console.print(
                f"SuperLink and SuperNodes of capacity {', '.join(map(str, CAPACITIES))} are up (loopback, {way})"
            )

            def show(record: dict[str, Any]) -> None:
                sent = record["bytes"]
                console.print(
                    f"round {record['round']}/{rounds}: loss {record['loss']:.3f}, "
                    f"{decimal(sent['down'])} down, {decimal(sent['up'])} up, {record['seconds']:.0f} s"
                )

            config = {"federation.rounds": rounds, "federation.evaluate_every": rounds, "method.name": method}
            outcome = running.run("run", config, show)
            console.print("stopping")
        show_traffic(outcome, console)
    except (LaunchError, CertificateError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:  # everything has been stopped
        raise click.Abort from None
    if keep is not None:
        console.print(f"app, logs and run directory: {keep}", markup=False, soft_wrap=True)
    from fedfibos.cli.results import show_rejected

    if show_rejected(outcome.final, console):
        raise typer.Exit(CLASS_REJECTED)


def show_traffic(outcome: Outcome, console: Console) -> None:
    """Print the bytes of a round, by client, against those of the full model; then the task's metric."""
    rounds = len(outcome.rounds)
    table = Table(title=f"bytes a round (mean of {rounds}); the full model is {outcome.full:,} each way")
    table.box, table.padding, table.pad_edge = SIMPLE, (0, 0), False  # 80 columns are enough
    columns = ("client", "capacity", "down", "of full", "up", "of full", "wire down", "wire up")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for one in outcome.traffic:
        down, up = one.payload_down / rounds, one.payload_up / rounds
        table.add_row(
            str(one.client),
            f"{one.capacity:g}",
            decimal(round(down)),
            f"{down / outcome.full:.1%}",
            decimal(round(up)),
            f"{up / outcome.full:.1%}",
            decimal(round(one.connection_down / rounds)),
            decimal(round(one.connection_up / rounds)),
        )
    console.print(table)
    console.print("wire: counted on each SuperNode's socket; payload, app, queries, polling, HTTP")
    evaluation = outcome.rounds[-1]["evaluation"]
    first, whole = measures_of(evaluation)[0], evaluation["global"]
    submodels = ", ".join(
        f"{capacity}: {first.text(value)}" for capacity, value in whole["submodels"].items() if value is not None
    )
    full = first.text(whole["full"])
    console.print(f"{first.directed} on the test set: full model {full}; submodels {submodels}", soft_wrap=True)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise ValueError(f"{keep} is not empty: choose another folder")
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="fedfibos-flower-", ignore_cleanup_errors=True) as name:
        yield Path(name)
