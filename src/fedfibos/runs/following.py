"""A run read while it goes on: its settings, and the rounds that have come since one last looked."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfibos.config.capacities import Capacities
from fedfibos.config.experiment import Experiment
from fedfibos.round import sample, sample_poisson
from fedfibos.runs.files import CONFIG, FINAL, ROUNDS
from fedfibos.runs.reading import parse_object
from fedfibos.runs.shapes import LINE_SHAPE
from fedfibos.runs.stored import experiment_of, no_run, settings_of

RECENT = 20
"""Rounds whose mean time says how long the others will take."""


@dataclass
class Seen:
    """What the rounds so far come to.

    Attributes:
        rounds: Finished.
        last: The last one's line.
        evaluation: The last that was made, and its round.
        seconds: Of all rounds, and of the last :data:`RECENT`.
        down: Bytes to clients.
        up: Bytes from them.
        devices: Capacity -> clients that took part, rejected ones included; of all rounds.
        turned_away: Capacity -> of these the rejected ones.
        kinds: What rejections say, their numbers left out -> how many.
        tried_again: Times that a round brought too few uploads.
        dropped: Devices beyond the cohort whose work was not used.
    """

    rounds: int = 0
    last: Mapping[str, Any] | None = None
    evaluation: tuple[int, Mapping[str, Any]] | None = None
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)
    down: int = 0
    up: int = 0
    devices: Counter[float] = field(default_factory=Counter)
    turned_away: Counter[float] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    tried_again: int = 0
    dropped: int = 0

    def add(self, record: Mapping[str, Any], capacities: Mapping[int, float]) -> None:
        """Count a round; ``capacities`` of its participants."""
        self.rounds, self.last = record["round"], record
        self.seconds += record["seconds"]
        self.recent = [*self.recent[1 - RECENT :], record["seconds"]]
        self.down += record["bytes"]["down"]
        self.up += record["bytes"]["up"]
        self.devices.update(capacities.values())
        self.turned_away.update(capacities[int(n)] for n in record["rejected"] if int(n) in capacities)
        self.kinds.update(map(kind_of, record["rejected"].values()))
        self.tried_again += len(record.get("skipped", ())) + ("skipped_round" in record)
        self.dropped += len(record.get("dropped", ()))
        if "evaluation" in record:
            self.evaluation = record["round"], record["evaluation"]


def kind_of(reason: str) -> str:
    """A reason without its numbers: ``its update has N values that are not finite``."""
    return re.sub(r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?![\w])", "N", reason)


class Following:
    """A run directory, of the simulator or of a Flower app's server.

    Attributes:
        run: The directory.
        title: Method, data and fleet in a few words.
        total: Rounds in all.
        seen: What was read so far.
    """

    def __init__(self, run: Path) -> None:
        """Open a run; none of its rounds is read yet.

        Raises:
            RecordError: It is no run directory.
        """
        if not (run / CONFIG).is_file():
            raise no_run(run)
        self.run, self.seen, self._offset = run, Seen(), 0
        settings = settings_of(run)
        self.total: int = settings["federation"]["rounds"]
        self._experiment: Experiment | None = experiment_of(run) if "model" in settings else None
        data = settings.get("data", {}).get("name", "a Flower fleet")
        cohort = settings["federation"]["cohort"]
        self.title = f"{settings['method']['name']} on {data}, {cohort} clients a round, seed {settings['seed']}"
        self._capacities: Capacities | None = None
        if self._experiment is not None and not self._experiment.federation.devices:
            self._capacities = self._experiment.capacities()

    @property
    def tells_who(self) -> bool:
        """Whether it is known which capacities took part: not of devices in their own units, unless rounds say it."""
        by_units = self._experiment is not None and self._capacities is None
        return not by_units or self.seen.devices.total() > 0

    @property
    def finished(self) -> bool:
        """Whether its results are there."""
        return (self.run / FINAL).exists()

    def read(self) -> list[dict[str, Any]]:
        """The rounds that have come since the last call; half a line waits for the next.

        Raises:
            RecordError: A line is damaged.
        """
        path = self.run / ROUNDS
        if not path.exists():
            return []
        with path.open("rb") as file:
            if path.stat().st_size < self._offset:  # it was run anew, or goes on from an earlier checkpoint
                self.seen, self._offset = Seen(), 0
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        records = [parse_object(str(path), line, LINE_SHAPE) for line in whole.splitlines()]
        for record in records:
            self.seen.add(record, self._who(record))
        return records

    def seconds_left(self) -> float | None:
        """As the last rounds took; None before the first, and after the last."""
        recent, left = self.seen.recent, self.total - self.seen.rounds
        return sum(recent) / len(recent) * left if recent and left > 0 and not self.finished else None

    def silent_for(self) -> float | None:
        """Seconds since the last round was written."""
        path = self.run / ROUNDS
        return max(0.0, time.time() - path.stat().st_mtime) if path.exists() else None

    def _who(self, record: Mapping[str, Any]) -> dict[int, float]:
        """The participants of a round, each with its capacity, as far as that can be told."""
        if "capacities" in record:
            return {int(client): capacity for client, capacity in record["capacities"].items()}
        if "clients" in record:
            return {int(client): part["capacity"] for client, part in record["clients"].items()}
        if self._experiment is None or self._capacities is None:
            return {}  # of devices in their own units nobody knows before the model is built
        federation, t = self._experiment.federation, record["round"] - 1
        privacy = self._experiment.privacy
        drawn = sample_poisson if privacy is not None and privacy.sampling == "poisson" else sample
        ids: Iterable[int] = record.get("participants") or drawn(
            federation.clients, federation.cohort_in(t), self._experiment.seed, t
        )
        ids = list(ids)
        return dict(zip(ids, self._capacities.of(ids, t), strict=True))
