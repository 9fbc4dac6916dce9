"""``fedfibos watch``: a run on the terminal while it goes on, or as it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedfibos.cli.progress import loss_of
from fedfibos.common.formatting import duration
from fedfibos.runs.following import Following
from fedfibos.runs.measures import measures_of

EVERY = 1.0
"""Seconds between two looks at the record."""

KINDS = 5
"""Kinds of rejections that are shown."""

WIDTH = 78


def watch_run(run: Path, once: bool, console: Console, every: float = EVERY) -> None:
    """Show a run until it is finished, or, ``once``, as it is now.

    Raises:
        RecordError: It is no run directory, or damaged.
    """
    following = Following(run)
    following.read()
    if once or following.finished or not console.is_terminal:
        console.print(screen(following))
        return
    with Live(screen(following), console=console, auto_refresh=False) as live:
        finished = False
        while not finished:
            time.sleep(every)
            finished = following.finished  # before the rounds are read: none comes after it
            following.read()
            live.update(screen(following), refresh=True)


def screen(following: Following) -> RenderableType:
    """All that is shown, in at most 80 columns."""
    seen = following.seen
    parts: list[RenderableType] = [Text(following.title, style="bold", overflow="ellipsis", no_wrap=True)]
    filled = WIDTH * seen.rounds // max(following.total, 1)
    parts.append(Text.assemble(("━" * filled, "green"), ("━" * (WIDTH - filled), "dim")))
    parts.append(Text(_state(following)))
    if seen.last is not None:
        loss = loss_of(seen.last, digits=4)
        again = f"   {seen.tried_again} without uploads" if seen.tried_again else ""
        dropped = f"   {seen.dropped} dropped" if seen.dropped else ""
        parts.append(Text(f"{loss}   down {decimal(seen.down)}   up {decimal(seen.up)}{again}{dropped}"))
        parts.append(_classes(following))
    if seen.kinds:
        parts.append(_rejections(following))
    return Group(*parts)


def _state(following: Following) -> str:
    seen = following.seen
    text = f"round {seen.rounds} of {following.total}   {duration(seen.seconds)}"
    if following.finished:
        return f"{text}   finished"
    left, silent = following.seconds_left(), following.silent_for()
    if left is not None:
        text += f"   about {duration(left)} left"
    if silent is not None and seen.recent and silent > 60 + 3 * max(seen.recent):
        text += f"   nothing new for {duration(silent)}"
    return text if seen.rounds else f"{text}   no round yet"


def _classes(following: Following) -> Table:
    """A row a capacity: how many devices took part so far and were rejected, and what they were measured at."""
    seen = following.seen
    round_number, evaluation = seen.evaluation or (0, {})
    named = f"{measures_of(evaluation)[0].words} after round {round_number}" if evaluation else "not measured yet"
    table = Table(title=named, title_justify="left", title_style="dim", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("capacity", "took part", "rejected", "global", "local"):
        table.add_column(heading, justify="right", no_wrap=True)
    measure = measures_of(evaluation)[0]

    def in_words(numbers: Mapping[str, Any], key: str) -> str:
        return "–" if numbers.get(key) is None else measure.text(numbers[key])

    def counted(number: int) -> str:
        return str(number) if following.tells_who else "–"

    submodels = evaluation.get("global", {}).get("submodels", {})
    local = evaluation.get("local", {}).get("by_capacity", {})
    for capacity in sorted({*seen.devices, *_capacities(submodels)}, reverse=True):
        key, took, away = str(capacity), counted(seen.devices[capacity]), counted(seen.turned_away[capacity])
        table.add_row(f"{capacity:g}", took, away, in_words(submodels, key), in_words(local, key))
    took, away = counted(seen.devices.total()), counted(seen.turned_away.total())
    own = evaluation.get("local", {})
    table.add_row("mean", took, away, in_words(submodels, "mean"), in_words(own, "mean"), style="bold")
    table.add_row("whole model", "", "", in_words(evaluation.get("global", {}), "full"), "")
    return table


def _capacities(table: Mapping[str, Any]) -> set[float]:
    return {float(key) for key in table if key != "mean"}


def _rejections(following: Following) -> Table:
    """The kinds of rejections, most frequent first."""
    kinds = following.seen.kinds
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, width=WIDTH)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True)
    for kind, count in kinds.most_common(KINDS):
        table.add_row(str(count), kind)
    if len(kinds) > KINDS:
        table.add_row("", f"and {len(kinds) - KINDS} kinds more")
    return table
