"""A round that brought too few uploads is tried again, after a while, and not for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.flower.task import FleetSettings
from fedfibos.round import NoUploadError

FIRST_WAIT = 5.0
"""Seconds before the round is tried again; then twice as many each time, up to ``federation.wait``."""

LOG = logging.getLogger("flwr")


class Attempts:
    """What was tried in the round that is open, and brought too few uploads.

    Attributes:
        skipped: As the round's line records it: reason, participants, rejected, bytes each way.
    """

    def __init__(self, federation: FleetSettings) -> None:
        self.federation = federation
        self.skipped: list[dict[str, Any]] = []

    @property
    def failed(self) -> set[int]:
        """Clients that were rejected in this round."""
        return {int(client) for tried in self.skipped for client in tried["rejected"]}

    def skip(
        self,
        number: int,
        reason: str,
        participants: Sequence[int] = (),
        rejected: Mapping[int, str] | None = None,
        sent: tuple[int, int] = (0, 0),
        dropped: Mapping[int, str] | None = None,
    ) -> None:
        """Note one more, and wait.

        Args:
            number: Of the round, from 1.
            reason: Why it is no round.
            participants: The cohort.
            rejected: Client -> why.
            sent: Bytes down and up.
            dropped: Client -> why its work was not used, of those beyond the cohort.

        Raises:
            NoUploadError: That was ``federation.patience`` times in turn.
        """
        self.skipped.append(
            {
                "reason": reason,
                "participants": list(participants),
                "rejected": {str(client): why for client, why in (rejected or {}).items()},
                "bytes": {"down": sent[0], "up": sent[1]},
                **({"dropped": {str(client): why for client, why in dropped.items()}} if dropped else {}),
            }
        )
        tried, patience = len(self.skipped), self.federation.patience
        if tried >= patience:
            times = f" ({tried} times in turn)" if tried > 1 else ""
            raise NoUploadError(f"round {number}: {reason}{times}", rejected)
        seconds = min(FIRST_WAIT * 2.0 ** min(tried - 1, 60), self.federation.wait)
        LOG.warning("round %d is tried again in %g s (%d of %d): %s", number, seconds, tried, patience, reason)
        time.sleep(seconds)

    def over(self) -> list[dict[str, Any]]:
        """The round has come about: what was tried before it, and nothing of the next."""
        skipped, self.skipped = self.skipped, []
        return skipped
