"""What a run shows while it goes on: a live bar on a terminal, one line an evaluation elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from fedfibos.common.formatting import count_of, duration
from fedfibos.config.experiment import Experiment
from fedfibos.runs.measures import measures_of


class RunProgress(Protocol):
    """What a run reports to."""

    def start(self, experiment: Experiment) -> None:
        """The run begins, or goes on."""

    def resume(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The run goes on after rounds that were finished before; ``records`` are their lines."""

    def round(self, record: Mapping[str, Any]) -> None:
        """A round is finished; ``record`` is its line of ``rounds.jsonl``."""

    def warn(self, text: str) -> None:
        """Something to know, in one line."""

    def finish(self, final: Mapping[str, Any] | None) -> None:
        """The run is over; ``final`` is None where it did not end by itself."""


def progress_on(console: Console) -> RunProgress:
    """A live bar where the console is a terminal, plain lines otherwise."""
    return LiveProgress(console) if console.is_terminal else PlainProgress(console)


class Tally:
    """What has been seen of a run so far, as text."""

    def __init__(self) -> None:
        self.down = self.up = self.rejected = 0
        self.evaluation: Mapping[str, Any] | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a round."""
        self.down += record["bytes"]["down"]
        self.up += record["bytes"]["up"]
        self.rejected += len(record["rejected"])
        self.evaluation = record.get("evaluation", self.evaluation)

    def go_on(self, records: Sequence[Mapping[str, Any]]) -> str:
        """Count the rounds of before; says how many there are."""
        for record in records:
            self.add(record)
        return f"going on after round {len(records)}"

    def accuracies(self) -> str:
        """Of the last evaluation."""
        if self.evaluation is None:
            return "not evaluated yet"
        found, text = self.evaluation["global"], measures_of(self.evaluation)[0].text
        return (
            f"global {text(found['full'])} (submodels {text(found['submodels']['mean'])})  "
            f"local {text(self.evaluation['local']['mean'])}"
        )

    def within(self, record: Mapping[str, Any], width: int) -> str:
        """Loss, accuracies and traffic in so many characters: what is less important is left out, nothing is cut."""
        pieces = [loss_of(record)]
        if self.evaluation is not None:
            whole, local = self.evaluation["global"], self.evaluation["local"]
            text = measures_of(self.evaluation)[0].text
            pieces += [f"global {text(whole['full'])}", f"local {text(local['mean'])}"]
        whole_line = f"{pieces[0]}  {self.accuracies()}  {self.traffic()}"
        if len(whole_line) <= width:
            return whole_line
        while len(pieces) > 1 and len("  ".join(pieces)) > width:
            pieces.pop()
        return "  ".join(pieces)

    def traffic(self) -> str:
        """Bytes so far, and rejected uploads if there are any."""
        rejected = f"  {self.rejected} rejected" if self.rejected else ""
        return f"down {decimal(self.down)}  up {decimal(self.up)}{rejected}"


LONGEST_LOSS = 10**5
"""From here a loss is shown as 1.23e+05."""


def loss_of(record: Mapping[str, Any], digits: int = 3) -> str:
    """The round's loss, or the epsilon spent so far; of one that brought no usable upload, that it was skipped."""
    if "skipped_round" in record:
        return "skipped"
    if "epsilon" in record:
        return f"epsilon {record['epsilon']:.3g}"
    loss = record["loss"]
    return f"loss {loss:.{digits}f}" if abs(loss) < LONGEST_LOSS else f"loss {loss:.3g}"


BAR = 14
"""Characters of the bar."""

COLUMNS = 4
"""Spaces between the columns of the live line."""


class PlainProgress:
    """One line an evaluation."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.tally = Tally()
        self.rounds = 0
        self.began: tuple[float, int] | None = None  # time and number of the first round seen

    def start(self, experiment: Experiment) -> None:
        """See :class:`RunProgress`."""
        self.rounds = experiment.federation.rounds
        self._print(title(experiment))

    def resume(self, records: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`RunProgress`."""
        self._print(self.tally.go_on(records))

    def round(self, record: Mapping[str, Any]) -> None:
        """See :class:`RunProgress`."""
        self.tally.add(record)
        now, number = time.monotonic(), record["round"]
        began, first = self.began = self.began or (now, number)
        if "evaluation" not in record:
            return
        left = ""
        if first < number < self.rounds:
            left = f"  {duration((now - began) / (number - first) * (self.rounds - number))} left"
        self._print(
            f"round {number}/{self.rounds}  {loss_of(record)}  {self.tally.accuracies()}  {self.tally.traffic()}{left}"
        )

    def warn(self, text: str) -> None:
        """See :class:`RunProgress`."""
        self._print(f"warning: {text}")

    def finish(self, final: Mapping[str, Any] | None) -> None:
        """See :class:`RunProgress`."""

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """A bar with the last round's loss, the last evaluation's accuracies, bytes and time left."""

    def __init__(self, console: Console) -> None:
        self.tally = Tally()
        self.bar = Progress(
            TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=BAR),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=console,
            speed_estimate_period=120.0,
        )
        self.task = self.bar.add_task("", start=False, total=None, state="loading")

    def start(self, experiment: Experiment) -> None:
        """See :class:`RunProgress`."""
        total = experiment.federation.rounds
        self.bar.update(self.task, description=experiment.method.name, total=total)
        self.bar.start()
        self._print(title(experiment))

    def resume(self, records: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`RunProgress`."""
        self._print(self.tally.go_on(records))

    def round(self, record: Mapping[str, Any]) -> None:
        """See :class:`RunProgress`."""
        self.tally.add(record)
        task = self.bar.tasks[0]
        taken = len(task.description) + BAR + 2 * len(str(int(task.total or 0))) + len("/0:00:00") + COLUMNS
        state = self.tally.within(record, self.bar.console.width - taken)
        if not self.bar.tasks[0].started:  # the first round here: after a resumption not round 1
            self.bar.reset(self.task, completed=record["round"] - 1, state=state)
        self.bar.update(self.task, completed=record["round"], state=state)

    def warn(self, text: str) -> None:
        """See :class:`RunProgress`."""
        self._print(f"warning: {text}")

    def finish(self, final: Mapping[str, Any] | None) -> None:
        """See :class:`RunProgress`."""
        self.bar.stop()

    def _print(self, line: str) -> None:
        self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def title(experiment: Experiment) -> str:
    """The run in a few words."""
    federation = experiment.federation
    return (
        f"{experiment.method.name} on {experiment.data.name}: {experiment.model.name}, "
        f"{count_of(federation.clients, 'client')}, {federation.cohort_label} a round, "
        f"{count_of(federation.rounds, 'round')}, "
        f"seed {experiment.seed}"
        + (", measured on held-out training examples" if experiment.evaluation.validation else "")
    )
