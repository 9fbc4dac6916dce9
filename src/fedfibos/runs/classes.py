"""Capacity classes that a run has lost: every client of one rejected, round after round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SEVERAL = 3
"""Rounds in a row, of those that the class took part in, after which it counts as lost."""


def rejected_classes(
    rounds: Sequence[Mapping[str, Any]], capacities: Callable[[Mapping[str, Any]], Iterable[tuple[int, float]]]
) -> dict[str, dict[str, Any]]:
    """Every capacity all of whose clients were rejected in :data:`SEVERAL` rounds in a row.

    Args:
        rounds: The lines of ``rounds.jsonl``.
        capacities: A line -> its participants, each with the capacity that it had then.

    Returns:
        ``str(capacity)`` -> ``rounds`` without an upload of it, ``of`` how many that it took part in, and the
        ``reason`` most often given. Clients that never answer by design (``federation.dropout``) did not take part.
    """
    history: dict[float, list[bool]] = {}
    reasons: dict[float, Counter[str]] = {}
    for record in rounds:
        silent = set(record.get("silent", ()))
        lost: dict[float, bool] = {}
        for client, capacity in capacities(record):
            if client in silent:
                continue
            reason = record["rejected"].get(str(client))
            lost[capacity] = lost.get(capacity, True) and reason is not None
            if reason is not None:
                reasons.setdefault(capacity, Counter())[reason] += 1
        for capacity, all_of_it in lost.items():
            history.setdefault(capacity, []).append(all_of_it)
    return {
        str(capacity): {
            "rounds": sum(history[capacity]),
            "of": len(history[capacity]),
            "reason": reasons[capacity].most_common(1)[0][0],
        }
        for capacity in sorted(history, reverse=True)
        if _longest(history[capacity]) >= SEVERAL
    }


def _longest(flags: Iterable[bool]) -> int:
    """The longest run of true ones."""
    longest = now = 0
    for flag in flags:
        now = now + 1 if flag else 0
        longest = max(longest, now)
    return longest


def rejected_lines(final: Mapping[str, Any]) -> list[str]:
    """What ``final.json`` says of them, a line each."""
    return [
        f"capacity {capacity}: all its clients were rejected in {lost['rounds']} of the {lost['of']} rounds that it "
        f"took part in ({lost['reason']})"
        for capacity, lost in final.get("rejected_classes", {}).items()
    ]


def skipped_line(final: Mapping[str, Any]) -> str | None:
    """What ``final.json`` says of rounds without a usable upload."""
    skipped = final.get("skipped_rounds", [])
    if not skipped:
        return None
    rounds = ", ".join(map(str, skipped[:5])) + (", ..." if len(skipped) > 5 else "")
    return f"{len(skipped)} of {final['rounds']} rounds were skipped, without a usable upload: {rounds}"
