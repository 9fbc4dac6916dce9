"""``fedfibos sweep``: one line a run, a summary at the end, and what to type to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from fedfibos.cli.exit_codes import CLASS_REJECTED, FAILED, REFUSED, exit_code
from fedfibos.cli.progress import loss_of
from fedfibos.cli.results import SUMMARIES, left_out_lines, show_rejected
from fedfibos.cli.terminal import warn
from fedfibos.common.extras import extra
from fedfibos.common.formatting import duration
from fedfibos.common.statistics import Spread, spread
from fedfibos.config.study import PlannedRun, Study, describe_grid, load_study
from fedfibos.runs.measures import Measure, measures_of
from fedfibos.simulation.cluster import check_no_address
from fedfibos.simulation.sweep import OnRound, Outcome, SweepProgress, run_study


def sweep(
    path: Path,
    overrides: Sequence[str],
    out: Path | None,
    only: Sequence[str],
    dry_run: bool,
    console: Console,
    summary: str,
    engine: str = "embedded",
    address: str | None = None,
    **options: Any,
) -> int:
    """Run a study and print its summary.

    Returns:
        The exit code: 0 where every run has its results, 2 where those that have none were refused, 3 where a run has
        lost a capacity.
    """
    study = load_study(path, overrides, only)
    console.print(f"{path}: {describe_grid(study)}", markup=False, highlight=False, soft_wrap=True)
    for line in fleet_lines(study):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for note in study.notes:
        warn(note)
    if dry_run:
        for run in study.runs:
            console.print(str(run.folder), markup=False, highlight=False, soft_wrap=True)
        return 0
    out = out or default_folder(path)
    progress = LineProgress(console, len(study.runs))
    try:
        outcomes = _runner(engine, address)(study, out, progress, **options)
    finally:
        progress.close()
    console.print(summary_table(study, outcomes, summary))
    for line in dict.fromkeys(line for outcome in outcomes for line in left_out_lines(outcome.final or {})):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"run directories: {out}", markup=False, highlight=False, soft_wrap=True)
    for outcome in outcomes:
        show_rejected(outcome.final or {}, console, f"{outcome.run.folder}: ")
    return code_of(outcomes)


def _runner(engine: str, address: str | None) -> Callable[..., list[Outcome]]:
    """What runs a study: one run after another here, or each where a Ray cluster has room.

    Raises:
        ValueError: An address without Ray.
        MissingExtraError: Ray is not installed.
    """
    if engine != "ray":
        check_no_address(address)
        return run_study
    with extra("ray"):
        from fedfibos.simulation.ray_sweep import run_study_on_ray
    return partial(run_study_on_ray, address=address)


def fleet_lines(study: Study) -> list[str]:
    """The classes of devices of its runs, a line for each fleet of them."""
    fleets = dict.fromkeys(run.experiment.federation.devices for run in study.runs)
    return [f"devices: {', '.join(f'{100 * d.share:g} % {d.name}' for d in fleet)}" for fleet in fleets if fleet]


def code_of(outcomes: Sequence[Outcome]) -> int:
    """The exit code of a sweep; a run that another process is at has no results yet."""
    without = [outcome.error for outcome in outcomes if outcome.final is None]
    if without:
        return REFUSED if all(error is not None and exit_code(error) == REFUSED for error in without) else FAILED
    return CLASS_REJECTED if any("rejected_classes" in (outcome.final or {}) for outcome in outcomes) else 0


def default_folder(path: Path) -> Path:
    """``runs/small/cifar10`` for ``experiments/small/cifar10.toml``."""
    return Path("runs") / path.parent.name / path.stem


def again(path: Path, overrides: Sequence[str], out: Path | None, only: Sequence[str], rest: Sequence[str]) -> str:
    """The command that goes on with a sweep."""
    words = ["fedfibos", "sweep", str(path), *overrides]
    words += ["--out", str(out)] if out is not None else []
    for selection in only:
        words += ["--only", selection]
    return shlex.join([*words, *rest])


class LineProgress(SweepProgress):
    """A line a run; on a terminal, the round of the current one beside it."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
        self.number = 0
        self.status: Status | None = None

    def start(self, run: PlannedRun, resumed: bool) -> OnRound:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""
        name = f"{run.folder}{' (resumed)' if resumed else ''}"
        if not self.console.is_terminal:
            return lambda record: None
        self.status = self.console.status(name)
        self.status.start()
        rounds = run.experiment.federation.rounds

        def show(record: Mapping[str, Any]) -> None:
            if self.status is not None:
                self.status.update(f"{name}: round {record['round']} of {rounds}, {loss_of(record)}")

        return show

    def warn(self, text: str) -> None:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""
        print(f"  warning: {text}", file=sys.stderr)

    def finish(self, outcome: Outcome) -> None:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""
        self.close()
        self.number += 1
        line = f"[{self.number}/{self.total}] {outcome.run.folder}: {result(outcome)}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the terminal's status line away."""
        if self.status is not None:
            self.status.stop()
            self.status = None


def result(outcome: Outcome) -> str:
    """What became of a run, in a few words."""
    final = outcome.final
    if outcome.state == "busy":
        return "left to the process that is at it"
    if final is None:
        return f"failed: {outcome.reason}"
    first = measures_of(final)[0]
    whole, local = final[first.global_key], final[first.local_key]
    text = (
        f"global {first.text(whole['full']['last'])} (submodels {first.text(whole['submodels']['mean']['last'])})  "
        f"local {first.text(local['mean']['last'])}"
    )
    return f"{text}  {'finished before' if outcome.state == 'finished' else duration(final['seconds'])}"


def summary_table(study: Study, outcomes: Sequence[Outcome], summary: str = "last") -> Table:
    """Mean ± sd over seeds of each cell; ``summary``: a key of :data:`fedfibos.cli.results.SUMMARIES`."""
    known = [measures_of(outcome.final)[0] for outcome in outcomes if outcome.final is not None]
    different = list(dict.fromkeys(known)) or [Measure("accuracy")]
    what = ", ".join(measure.heading for measure in different)
    table = Table(title=f"{what}, {SUMMARIES[summary]}, mean ± sd over seeds")
    for axis in study.axes or ("",):
        table.add_column(axis)
    for column in ("runs", "global, full", "submodels", "local"):
        table.add_column(column, justify="right", no_wrap=True)
    by_cell: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        by_cell.setdefault(outcome.run.cell, []).append(outcome)
    for cell, members in by_cell.items():
        finals = [outcome.final for outcome in members if outcome.final is not None]
        first = measures_of(finals[0])[0] if finals else different[0]
        runs = str(len(finals)) if len(finals) == len(members) else f"{len(finals)} of {len(members)}"
        table.add_row(
            *(cell or ("",)),
            runs,
            _cell(spread(final[first.global_key]["full"][summary] for final in finals), first),
            _cell(spread(final[first.global_key]["submodels"]["mean"][summary] for final in finals), first),
            _cell(spread(final[first.local_key]["mean"][summary] for final in finals), first),
        )
    return table


def _cell(value: Spread | None, measure: Measure) -> str:
    return "–" if value is None else value.text(measure.scale, measure.digits(value.mean))
