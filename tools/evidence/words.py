"""How the pages write numbers, what they call a difference, and sentences that are only written while they are true."""

from __future__ import annotations

from fedfibos.common.statistics import Spread

MARGIN = 0.01
"""Accuracies closer than this count as equal."""


def percent(value: Spread | None) -> str:
    """An accuracy in %, with its standard deviation."""
    return "–" if value is None else value.text(100)


def interval(value: Spread | None) -> str:
    """A difference in points with its 95 % interval, ``+4.1 [+0.7, +7.5]``; of one pair the difference alone."""
    if value is None:
        return "–"
    limits = value.interval()
    return _signed(value.mean) if limits is None else f"{_signed(value.mean)} [{', '.join(map(_signed, limits))}]"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f}".replace("-", "−")


def verdict(value: Spread | None) -> str:
    """``ahead``, ``behind``, ``equal within 1`` (point), or ``not settled``, by the 95 % interval."""
    limits = None if value is None else value.interval()
    if value is None or limits is None:
        return "not settled (one pair)"
    low, high = limits
    if low > 0:
        return "ahead"
    if high < 0:
        return "behind"
    return "equal within 1" if max(-low, high) < MARGIN else "not settled"


def claim(truth: bool, sentence: str) -> str:
    """A sentence about the numbers, if it is true."""
    if not truth:
        raise SystemExit(f"tools/findings.py says what the records do not: {sentence!r}")
    return sentence
