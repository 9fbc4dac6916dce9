"""``fedfibos demo``: all methods at the same capacities on the bundled digits, in about a minute.

20 clients of five capacities, Dirichlet 0.3. The ceiling is FedAvg with full-size clients only, the floor FedAvg on
a model that the smallest client can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedfibos.cli.progress import RunProgress, progress_on
from fedfibos.cli.results import SUMMARIES, show_rejected
from fedfibos.common.formatting import percent
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data, Evaluation
from fedfibos.data.partition import Partition
from fedfibos.simulation import simulate
from fedfibos.training import LocalTraining

SMALLEST = 0.0625

BASE = Experiment(
    data=Data("digits", Partition("dirichlet", alpha=0.3)),
    model=ModelChoice("mlp", options={"hidden": (128,)}),
    federation=Federation(clients=20, cohort=10, rounds=80),
    method=MethodChoice("fedfibos"),
    local=LocalTraining(steps=20, batch_size=20, lr=0.1),
    evaluation=Evaluation(every=2),
)


@dataclass(frozen=True)
class Entry:
    """One line of the demo's table.

    Attributes:
        title: How it is called in the table.
        folder: Its run directory, below the demo's.
        experiment: What is run.
    """

    title: str
    folder: str
    experiment: Experiment


def entries() -> list[Entry]:
    """The runs of the demo, in the order of the table."""

    def fedavg(capacity: float) -> Experiment:
        federation = replace(BASE.federation, capacities={capacity: 1.0})
        return replace(BASE, federation=federation, method=MethodChoice("fedavg", settings={"capacity": capacity}))

    def with_method(name: str, preset: str | None = None, **settings: Any) -> Experiment:
        return replace(BASE, method=MethodChoice(name, preset, settings))

    def nested(experiment: Experiment) -> Experiment:
        return replace(experiment, local=replace(experiment.local, nested=0.5))

    # HeteroFL's scaler works in training alone; without a normalisation layer to undo it, as in this MLP, it would
    # leave narrow submodels out of scale at evaluation, and the three methods that have it look worse than they are.

    return [
        Entry("FedAvg, all full-size", "fedavg-full", fedavg(1.0)),
        Entry("FedAvg, all smallest", "fedavg-smallest", fedavg(SMALLEST)),
        Entry("HeteroFL", "heterofl", with_method("heterofl", scaler=False)),
        Entry("FedRolex", "fedrolex", with_method("fedrolex", scaler=False)),
        Entry("FedBRB (interpretation)", "fedbrb", with_method("fedbrb", scaler=False)),
        Entry("FIARSE", "fiarse", with_method("fiarse")),
        Entry("FedFIbOS", "fedfibos", with_method("fedfibos")),
        Entry("FedFIbOS, algorithm1", "fedfibos-algorithm1", with_method("fedfibos", "algorithm1")),
        Entry("FedFIbOS, saliency, nested", "fedfibos-nested", nested(with_method("fedfibos", "recommended"))),
        Entry("FedFIbOS on channels, nested", "fedfibos-channels", nested(with_method("fedfibos-channels"))),
    ]


def run_demo(out: Path, workers: int | None, console: Console, summary: str = "last") -> bool:
    """Run the demo into a new folder and print its table; whether a run has lost a capacity."""
    console.print(
        "20 clients hold the bundled digits, unequally (Dirichlet 0.3), and can afford 1, 1/2, 1/4, 1/8 or 1/16 of\n"
        f"an MLP's parameters. Ten of them train in each of {BASE.federation.rounds} rounds. Slices, which are "
        "whole\nchannels, hold at most that share, masks exactly it; FedAvg is shown at both ends. With nested steps\n"
        "a client trains a smaller submodel inside its own in half of its steps.",
        soft_wrap=True,
    )
    results: list[tuple[Entry, Mapping[str, Any]]] = []
    warned: set[str] = set()
    for entry in entries():
        progress = progress_on(console)
        progress.start(entry.experiment)
        final = None

        def warn(text: str, progress: RunProgress = progress) -> None:
            if text not in warned:  # the same fleet and model every time
                progress.warn(text)
            warned.add(text)

        try:
            final = simulate(
                entry.experiment,
                out / entry.folder,
                workers=workers,
                on_round=progress.round,
                on_warning=warn,
            )
        finally:
            progress.finish(final)
        results.append((entry, final))
    console.print(results_table(results, summary))
    seconds = sum(final["seconds"] for _, final in results)
    console.print(
        f"Accuracy on test data, {SUMMARIES[summary]}, one seed: no ranking. global: the whole test set, on the full\n"
        "model, on the submodels (mean over capacities) and on the smallest; local: each client's own submodel on its\n"
        "own test split; MB: sent, both ways. FedAvg with full-size clients is the ceiling; with a model that the\n"
        "smallest client can hold, the floor. FedBRB is our declared interpretation.\n"
        f"Training and evaluation took {seconds:.0f} s.",
        soft_wrap=True,
    )
    console.print(f"Run directories: {out}", soft_wrap=True)
    return any([show_rejected(final, console, f"{entry.title}: ") for entry, final in results])


def results_table(results: list[tuple[Entry, Mapping[str, Any]]], summary: str) -> Table:
    """A line an entry."""
    table = Table()
    table.add_column("method")
    for column in ("global, full", "submodels", "smallest", "local", "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry, final in results:
        accuracy = final["global_accuracy"]
        submodels = accuracy["submodels"]
        table.add_row(
            entry.title,
            percent(accuracy["full"][summary]),
            percent(submodels["mean"][summary]),
            percent(submodels[str(SMALLEST)][summary]) if str(SMALLEST) in submodels else "–",
            percent(final["local_accuracy"]["mean"][summary]),
            f"{(final['bytes']['down'] + final['bytes']['up']) / 1e6:.1f}",
        )
    return table


def new_folder(parent: Path) -> Path:
    """The first of ``demo-1``, ``demo-2``, ... that does not exist."""
    number = 1
    while (parent / f"demo-{number}").exists():
        number += 1
    return parent / f"demo-{number}"
