"""A run's progress as JSON lines, for programs that read logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from fedfibos.cli.progress import title
from fedfibos.config.experiment import Experiment


class JsonProgress:
    """One object a line: ``time``, ``event`` (``start``, ``resume``, ``round``, ``warning``, ``finish``), what it says.

    A ``round`` has its line of ``rounds.jsonl``, a ``finish`` the content of ``final.json``, null where a run
    did not end by itself.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, experiment: Experiment) -> None:
        """See :class:`fedfibos.cli.progress.RunProgress`."""
        self._say("start", title=title(experiment), rounds=experiment.federation.rounds)

    def resume(self, records: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`fedfibos.cli.progress.RunProgress`."""
        self._say("resume", after=len(records))

    def round(self, record: Mapping[str, Any]) -> None:
        """See :class:`fedfibos.cli.progress.RunProgress`."""
        self._say("round", **record)

    def warn(self, text: str) -> None:
        """See :class:`fedfibos.cli.progress.RunProgress`."""
        self._say("warning", text=text)

    def finish(self, final: Mapping[str, Any] | None) -> None:
        """See :class:`fedfibos.cli.progress.RunProgress`."""
        self._say("finish", final=final)

    def _say(self, event: str, **what: Any) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **what})
        print(line, file=self.console.file, flush=True)
