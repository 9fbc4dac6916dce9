"""The command line: ``fedfibos run``, ``sweep``, ``report``, ``audit``, ``diagnose``, ``settings`` and the others.

Exit codes: 0 done; 1 the run failed; 2 wrong usage or a wrong experiment; 130 interrupted. Errors are one line on
standard error; with FEDFIBOS_TRACEBACK=1 they are tracebacks. What needs torch is imported by the command that needs
it, so ``--help`` answers at once.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.cli.flower import flower_app
from fedfibos.cli.surroundings import (
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    console_here,
    exit_code,
    fail,
    log_on_stderr,
    look_beside,
    look_here,
    warn,
)

app = typer.Typer(
    help="Federated learning across clients of unequal capacity.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)
app.add_typer(flower_app, name="flower")


class Device(StrEnum):
    """Where clients train."""

    cpu = "cpu"
    cuda = "cuda"


DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data sets; default: the environment variable FEDFIBOS_DATA."),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    keep_freed_memory()
    look_here()
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


def _folder(value: Path | None) -> Path | None:
    """Refuse ``--out --resume``, which would make a folder named ``--resume``."""
    if value is not None and str(value).startswith("-"):
        raise typer.BadParameter(f"a folder is wanted, got {str(value)!r}")
    return value


@app.command()
def run(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML), or a run directory.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value ...")] = None,
    out: Annotated[Path | None, typer.Option(callback=_folder, help="Run directory to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a processor.")] = None,
    device: Annotated[Device, typer.Option(help="Where clients train.")] = Device.cpu,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings, and parameters and bytes of each capacity; no run.")
    ] = False,
) -> int:
    """Run an experiment, or go on with an interrupted one."""
    from fedfibos.config.experiment import load_experiment

    look_beside(experiment)
    if out is None and resume and experiment.is_dir():
        out = experiment
    if out is None and not dry_run:
        return fail("a run needs --out DIR, the run directory to write", WRONG_USAGE)
    settings = load_experiment(experiment, overrides or ())
    if out is None or dry_run:
        from fedfibos.cli.dry_run import show_plan

        show_plan(settings, data_dir, console_here(), warn)
        return 0
    _check_device(device)
    if resume and not (out / "config.toml").exists():
        warn(f"{out} holds no run to go on with: starting from round 1")
    again = ["fedfibos", "run", str(experiment), *(overrides or ()), "--out", str(out), "--resume"]
    again += ["--data-dir", str(data_dir)] if data_dir is not None else []
    again += ["--device", device.value] if device is not Device.cpu else []
    again += ["--workers", str(workers)] if workers is not None else []
    return _simulate(settings, out, again, resume=resume, workers=workers, device=device.value, data_dir=data_dir)


def _simulate(settings: Any, out: Path, again: Sequence[str], **options: Any) -> int:
    """Run the engine, show its progress and results; Ctrl-C says how to resume (``again``)."""
    from fedfibos.cli.progress import progress_on
    from fedfibos.cli.results import show_results
    from fedfibos.simulation import Interrupted, simulate

    console = console_here()
    progress = progress_on(console)
    progress.start(settings)
    final = None
    try:
        final = simulate(
            settings,
            out,
            on_resume=progress.resume,
            on_round=progress.round,
            on_warning=progress.warn,
            **options,
        )
    except Interrupted as stop:
        progress.finish(None)
        return fail(f"{stop}; go on with: {shlex.join(again)}", INTERRUPTED)
    finally:
        progress.finish(final)
    show_results(final, out, console)
    return 0


def _check_device(device: Device) -> None:
    import torch

    if device is Device.cuda:  # a queue of its own for every client; the driver looks when it starts
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if device is Device.cuda and not torch.cuda.is_available():
        raise typer.BadParameter("cuda was asked for, but torch sees no CUDA device", param_hint="--device")


@app.command()
def sweep(
    study: Annotated[Path, typer.Argument(help="Study file (TOML): a base experiment, a grid of variants, seeds.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value ..., for every run.")] = None,
    out: Annotated[
        Path | None, typer.Option(callback=_folder, help="Folder of the run directories; default: runs/FOLDER/STUDY.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="axis=variant,... : a part of the grid; seed=0 too.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a processor.")] = None,
    device: Annotated[Device, typer.Option(help="Where clients train.")] = Device.cpu,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every run's settings and list them; no run.")
    ] = False,
) -> int:
    """Run every cell of a study with every seed; finished runs are skipped, broken ones resumed."""
    from fedfibos.cli.sweep import again
    from fedfibos.cli.sweep import sweep as run_sweep
    from fedfibos.simulation import Interrupted

    look_beside(study)
    rest = ["--workers", str(workers)] if workers is not None else []
    rest += ["--data-dir", str(data_dir)] if data_dir is not None else []
    rest += ["--device", device.value] if device is not Device.cpu else []
    try:
        _check_device(device)
        options = {"workers": workers, "device": device.value, "data_dir": data_dir}
        done = run_sweep(study, overrides or (), out, only or (), dry_run, console_here(), **options)
    except Interrupted as stop:
        command = again(study, overrides or (), out, only or (), rest)
        return fail(f"{stop} of the current run; go on with: {command}", INTERRUPTED)
    return 0 if done else FAILED


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders with run directories below them.")],
    out: Annotated[Path, typer.Option(callback=_folder, help="The page to write.")] = Path("report.html"),
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare the others with this method, seed by seed: a row's label, a study's variant, or a name.",
            show_default="the FedFIbOS nearest to its defaults",
        ),
    ] = None,
) -> None:
    """Write one self-contained page of tables and figures from finished runs."""
    from fedfibos.cli.report import report as write

    write(runs, out, against, console_here())


@app.command()
def audit(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory with a checkpoint.")],
    batch_size: Annotated[int, typer.Option(min=2, help="Test examples a batch.")] = 20,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    data_dir: DataDir = None,
) -> None:
    """Show what evaluation on the statistics of test batches would make of a run (models with BatchNorm)."""
    from fedfibos.cli.audit import audit_run

    def work() -> None:
        audit_run(run_directory, batch_size, data_dir, device.value, console_here())

    _on_checkpoint(run_directory, work, device)


@app.command()
def evaluate(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory with a checkpoint.")],
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    data_dir: DataDir = None,
) -> None:
    """Measure the accuracies of a run's last checkpoint anew."""
    from fedfibos.cli.evaluate import evaluate_run

    def work() -> None:
        evaluate_run(run_directory, data_dir, device.value, console_here())

    _on_checkpoint(run_directory, work, device)


@app.command()
def export(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory with a checkpoint.")],
    capacity: Annotated[float, typer.Option(help="Share of the maskable parameters, in (0, 1].")],
    out: Annotated[
        Path, typer.Option(callback=_folder, help="File to write: .pt2, .onnx, .safetensors or .sparse.safetensors.")
    ],
    client: Annotated[int | None, typer.Option(min=0, help="Whose, where submodels are personal.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, max=64, help=".pt2 and .onnx for so many examples; default: any number.")
    ] = None,
    app: Annotated[Path | None, typer.Option(help="The file of the Flower app that made the run.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write the submodel of a device class as a file that other programs load."""
    from fedfibos.cli.export import of_app, of_run, write
    from fedfibos.submodel import check_capacity

    def work() -> None:
        check_capacity(capacity)
        source = of_run(run_directory, data_dir) if app is None else of_app(run_directory, app)
        write(source, capacity, client, out, batch_size, console_here())

    _on_checkpoint(run_directory, work, Device.cpu)


@app.command()
def diagnose(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory with a checkpoint.")],
    clients: Annotated[int, typer.Option(min=1, help="How many clients to measure.")] = 5,
    capacity: Annotated[list[float] | None, typer.Option(help="Capacities; default: the run's below 1.")] = None,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    data_dir: DataDir = None,
) -> None:
    """Measure the theory at a run's last checkpoint: masking errors, assumptions 4 and 5, agreement of selections."""
    from fedfibos.cli.diagnose import diagnose_run

    def work() -> None:
        diagnose_run(run_directory, clients, capacity or (), data_dir, device.value, console_here())

    _on_checkpoint(run_directory, work, device)


def _on_checkpoint(run_directory: Path, work: Callable[[], None], device: Device) -> None:
    """Look at a run's checkpoint: the numbers do not depend on how many threads the machine has."""
    from fedfibos.backend.determinism import reproducible

    look_beside(run_directory)
    _check_device(device)
    with reproducible():
        work()


@app.command()
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
    from fedfibos.config.experiment import load_experiment
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
        look_beside(experiment)
        chosen = load_experiment(experiment, changes)
        world = build_world(chosen, device="cpu", data_dir=data_dir, warn=lambda text: None)
        costs = costs_in(world, chosen, alone=names_a_method(changes))
    if as_json:
        show_json(costs, limits)
    else:
        show_costs(costs, limits, console_here())


def _bytes(text: str | None, option: str) -> float | None:
    """A limit of the command line."""
    from fedfibos.common.formatting import bytes_in

    if text is None:
        return None
    try:
        return bytes_in(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


@app.command()
def settings(
    word: Annotated[str, typer.Argument(help="Part of a key or of a section: lr, data, fedfibos ...")] = "",
) -> None:
    """Explain what an experiment file may hold: keys, defaults, values."""
    from fedfibos.cli.settings import show_settings

    show_settings(word, console_here())


@app.command()
def data(
    data_dir: DataDir = None,
    count: Annotated[
        bool, typer.Option("--count", help="Read them, and write as JSON how many examples they have and should have.")
    ] = False,
) -> None:
    """List the data sets: where each was found, or which file to put where."""
    from fedfibos.cli.datasets import counted, show_data

    if count:
        print(json.dumps(counted(data_dir), indent=2))
    else:
        show_data(data_dir, console_here())


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(callback=_folder, help="Folder for its run directories; default: runs/demo-N.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a processor.")] = None,
) -> int:
    """Compare all methods at the same capacities on the bundled digits; about a minute."""
    from fedfibos.cli.demo import new_folder, run_demo
    from fedfibos.simulation import Interrupted

    try:
        run_demo(out or new_folder(Path("runs")), workers, console_here())
    except Interrupted as stop:
        return fail(f"{stop}; the demo is not resumed, start it again", INTERRUPTED)
    return 0
