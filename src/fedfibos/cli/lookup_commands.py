"""Commands that train nothing: ``report``, ``methods``, ``plan``, ``axes``, ``settings``, ``data``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedfibos.cli.code_folders import search_beside
from fedfibos.cli.options import DataDir, Overrides, Summary, SummaryOption, not_an_option
from fedfibos.cli.terminal import console_here, warn


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, folders of some, or archives of these.")],
    out: Annotated[Path, typer.Option(callback=not_an_option, help="The page to write.")] = Path("report.html"),
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare the others with this method, seed by seed: a row's label, a study's variant, or a name.",
            show_default="the FedFIbOS nearest to its defaults",
        ),
    ] = None,
    summary: SummaryOption = Summary.last,
) -> None:
    """Write one self-contained page of tables and figures from finished runs."""
    from fedfibos.cli.report import report as write

    write(runs, out, against, summary.value, console_here())


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, of the simulator or of a Flower server.")],
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now, and end.")] = False,
) -> None:
    """Show a run while it goes on: rounds, accuracies, devices by class, rejections by kind, time left."""
    from fedfibos.cli.watch import watch_run

    watch_run(run, once, console_here())


def methods(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment file: costs of its model, data and capacities.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value ...; method.name=NAME shows that method alone.")
    ] = None,
    model: Annotated[str, typer.Option(help="Without a file: the bundled model that the costs are for.")] = "resnet8",
    memory: Annotated[
        str | None, typer.Option(help="What a client has for training, such as 512MiB: mark what fits.")
    ] = None,
    bytes_per_round: Annotated[
        str | None, typer.Option(help="What a round may send and receive, such as 3MB: mark what fits.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The costs alone, as JSON in bytes; with limits, only what fits.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Say what each capacity costs a client under each method; without a file, also what the methods are."""
    from fedfibos.cli.chosen import chosen_experiment
    from fedfibos.cli.methods import (
        Affordable,
        costs_in,
        costs_of,
        methods_named,
        names_a_method,
        show_costs,
        show_json,
        show_methods,
    )
    from fedfibos.simulation import build_world

    limits = Affordable(_bytes(memory, "--memory"), _bytes(bytes_per_round, "--bytes-per-round"))
    changes = list(overrides or ())
    if experiment is not None and "=" in str(experiment) and not experiment.exists():
        changes.insert(0, str(experiment))
        experiment = None
    if experiment is None:
        named = methods_named(changes)
        costs = costs_of(model, named)
        if not as_json:
            show_methods(named, console_here())
    else:
        search_beside(experiment)
        chosen = chosen_experiment(experiment, changes)
        world = build_world(chosen, device="cpu", data_dir=data_dir, warn=lambda text: None)
        costs = costs_in(world, chosen, alone=names_a_method(changes))
    if as_json:
        show_json(costs, limits)
    else:
        show_costs(costs, limits, console_here())


def plan(
    fleet: Annotated[Path, typer.Argument(help="Experiment file with classes of devices (federation.devices).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value ...; method.name=NAME shows that method alone.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how fast this machine trains the whole model, in a few steps.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON: bytes, seconds, operations.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Say which devices of a fleet can take part under each method, with what submodel, and what binds."""
    from fedfibos.cli.chosen import chosen_experiment
    from fedfibos.cli.methods import names_a_method
    from fedfibos.cli.plan import show_json, show_plan
    from fedfibos.simulation.plan import plan_fleet

    search_beside(fleet)
    changes = list(overrides or ())
    chosen = chosen_experiment(fleet, changes)
    found = plan_fleet(chosen, alone=names_a_method(changes), measure=measure, data_dir=data_dir, warn=warn)
    if as_json:
        show_json(found)
    else:
        show_plan(found, console_here())


def _bytes(text: str | None, option: str) -> float | None:
    """A limit of the command line."""
    from fedfibos.common.formatting import bytes_in

    if text is None:
        return None
    try:
        return bytes_in(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def axes(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML), or a run directory.")],
    overrides: Overrides = None,
    data_dir: DataDir = None,
) -> None:
    """Print which dimensions of a model's tensors are the same channels, as Python to paste and change."""
    from fedfibos.cli.axes import show_axes
    from fedfibos.cli.chosen import chosen_experiment

    search_beside(experiment)
    show_axes(chosen_experiment(experiment, overrides), data_dir)


def settings(
    word: Annotated[str, typer.Argument(help="Part of a key or of a section: lr, data, fedfibos ...")] = "",
) -> None:
    """Explain what an experiment file may hold: keys, defaults, values."""
    from fedfibos.cli.settings import show_settings

    show_settings(word, console_here())


def data(
    overrides: Overrides = None,
    show: Annotated[
        Path | None,
        typer.Option(metavar="EXPERIMENT", help="Show how an experiment's file deals its data: classes by client."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(callback=not_an_option, help="With --show: draw it too (.svg, .png or .pdf).")
    ] = None,
    data_dir: DataDir = None,
    count: Annotated[
        bool, typer.Option("--count", help="Read them, and write as JSON how many examples they have and should have.")
    ] = False,
) -> None:
    """List the data sets: where each was found, or which file to put where; or show how one is dealt."""
    from fedfibos.cli.datasets import count_examples, show_data

    if show is not None:
        from fedfibos.cli.chosen import chosen_experiment
        from fedfibos.cli.partition import show_partition

        search_beside(show)
        show_partition(chosen_experiment(show, overrides), data_dir, picture, console_here(), warn)
    elif picture is not None or overrides:
        got = "--picture" if picture is not None else repr((overrides or [""])[0])
        raise typer.BadParameter(f"{got} goes with --show EXPERIMENT")
    elif count:
        print(json.dumps(count_examples(data_dir), indent=2))
    else:
        show_data(data_dir, console_here())
