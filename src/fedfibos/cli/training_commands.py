"""Commands that train: ``run``, ``sweep``, ``demo``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfibos.cli.code_folders import search_beside
from fedfibos.cli.exit_codes import CLASS_REJECTED, INTERRUPTED, REFUSED
from fedfibos.cli.last_words import last_words
from fedfibos.cli.options import (
    Address,
    DataDir,
    Device,
    EngineName,
    EngineOption,
    LogFormat,
    Overrides,
    Summary,
    SummaryOption,
    TrainOn,
    Workers,
    check_device,
    not_an_option,
)
from fedfibos.cli.terminal import console_here, fail, warn


def run(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML), or a run directory.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(callback=not_an_option, help="Run directory to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the run in --out first; files that are not a run's stay.")
    ] = False,
    workers: Workers = None,
    device: TrainOn = Device.cpu,
    engine: EngineOption = EngineName.embedded,
    address: Address = None,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings, and parameters and bytes of each capacity; no run.")
    ] = False,
    summary: SummaryOption = Summary.last,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Lines for people, or JSON lines.")] = (
        LogFormat.text
    ),
) -> int:
    """Run an experiment, or go on with an interrupted one."""
    from fedfibos.cli.chosen import chosen_experiment

    search_beside(experiment)
    if out is None and resume and experiment.is_dir():
        out = experiment
    if out is None and not dry_run:
        return fail("a run needs --out DIR, the run directory to write", REFUSED)
    if resume and overwrite:
        return fail("--resume goes on with the run in --out and --overwrite removes it: pass one of them", REFUSED)
    settings = chosen_experiment(experiment, overrides)
    if out is None or dry_run:
        from fedfibos.cli.dry_run import show_plan

        show_plan(settings, data_dir, console_here(), warn)
        return 0
    check_device(device)
    if resume and not (out / "config.toml").exists():
        warn(f"{out} holds no run to go on with: starting from round 1")
    again = ["fedfibos", "run", str(experiment), *(overrides or ()), "--out", str(out), "--resume"]
    again += ["--data-dir", str(data_dir)] if data_dir is not None else []
    again += ["--device", device.value] if device is not Device.cpu else []
    again += ["--workers", str(workers)] if workers is not None else []
    again += on_engine(engine, address)
    again += ["--summary", summary.value] if summary is not Summary.last else []
    again += ["--log-format", "json"] if log_format is LogFormat.json else []
    shown = None if log_format is LogFormat.json else summary.value
    options = {"workers": workers, "device": device.value, "data_dir": data_dir}
    options |= {"engine": engine.value, "address": address}
    with _told_if_ray_ends_it(engine, shlex.join(again)):
        return _simulate(settings, out, again, shown, resume=resume, overwrite=overwrite, **options)


def on_engine(engine: EngineName, address: str | None) -> list[str]:
    """The words of a command that say where clients train; none for this machine's engine."""
    words = ["--engine", engine.value] if engine is not EngineName.embedded else []
    return words + (["--address", address] if address is not None else [])


def _told_if_ray_ends_it(engine: EngineName, again: str) -> AbstractContextManager[None]:
    """Have the command that goes on said where Ray ends this process, which it does without a word."""
    if engine is not EngineName.ray:
        return nullcontext()
    why = "the process was killed, by Ray if the Ray node on this machine died"
    return last_words(f"{why}; the checkpoint is kept, go on with: {again}")


def _simulate(settings: Any, out: Path, again: Sequence[str], summary: str | None, **options: Any) -> int:
    """Run the engine, show its progress and results (``summary`` None: as JSON); Ctrl-C says how to resume."""
    from fedfibos.cli.json_lines import JsonProgress
    from fedfibos.cli.progress import RunProgress, progress_on
    from fedfibos.cli.results import show_results
    from fedfibos.simulation import Interrupted, simulate

    console = console_here()
    progress: RunProgress = JsonProgress(console) if summary is None else progress_on(console)
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
        return fail(f"{stop}; go on with: {shlex.join(again)}", INTERRUPTED)
    finally:
        progress.finish(final)
    if summary is not None:
        show_results(final, out, console, summary)
    return CLASS_REJECTED if "rejected_classes" in final else 0


def sweep(
    study: Annotated[Path, typer.Argument(help="Study file (TOML): a base experiment, a grid of variants, seeds.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="section.key=value ..., for every run.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(callback=not_an_option, help="Folder of the run directories; default: runs/FOLDER/STUDY."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=VARIANT,...",
            help="A part of the grid: variants of one axis, or seed=0,1. Several axes: give the option again.",
        ),
    ] = None,
    workers: Workers = None,
    device: TrainOn = Device.cpu,
    engine: EngineOption = EngineName.embedded,
    address: Address = None,
    data_dir: DataDir = None,
    summary: SummaryOption = Summary.last,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every run's settings and list them; no run.")
    ] = False,
) -> int:
    """Run every cell of a study with every seed; finished runs are skipped, broken ones resumed."""
    from fedfibos.cli.sweep import again
    from fedfibos.cli.sweep import sweep as run_sweep
    from fedfibos.simulation.interrupts import Interrupted, StudyInterrupted

    search_beside(study)
    rest = ["--workers", str(workers)] if workers is not None else []
    rest += ["--data-dir", str(data_dir)] if data_dir is not None else []
    rest += ["--device", device.value] if device is not Device.cpu else []
    rest += ["--summary", summary.value] if summary is not Summary.last else []
    rest += on_engine(engine, address)
    command = again(study, overrides or (), out, only or (), rest)
    try:
        if engine is EngineName.embedded:  # the head of a cluster may have no GPU
            check_device(device)
        options: dict[str, Any] = {"workers": workers, "device": device.value, "data_dir": data_dir}
        options |= {"engine": engine.value, "address": address}
        with _told_if_ray_ends_it(engine, command):
            return run_sweep(study, overrides or (), out, only or (), dry_run, console_here(), summary.value, **options)
    except Interrupted as stop:
        which = "" if isinstance(stop, StudyInterrupted) else " of the current run"
        return fail(f"{stop}{which}; go on with: {command}", INTERRUPTED)


def demo(
    out: Annotated[
        Path | None, typer.Option(callback=not_an_option, help="Folder for its run directories; default: runs/demo-N.")
    ] = None,
    workers: Workers = None,
    summary: SummaryOption = Summary.last,
) -> int:
    """Compare all methods at the same capacities on the bundled digits; about a minute."""
    from fedfibos.cli.demo import new_folder, run_demo
    from fedfibos.simulation import Interrupted

    try:
        lost = run_demo(out or new_folder(Path("runs")), workers, console_here(), summary.value)
    except Interrupted as stop:
        return fail(f"{stop}; the demo is not resumed, start it again", INTERRUPTED)
    return CLASS_REJECTED if lost else 0
