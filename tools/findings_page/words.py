"""How the findings write numbers, and the sentences that are only written while they are true."""

from __future__ import annotations

from dataclasses import replace

from fedfibos.common.statistics import Spread


def percent(value: Spread | None) -> str:
    """An accuracy in %, with its spread."""
    return "–" if value is None else value.text(100)


def points(value: Spread | None) -> str:
    """A difference of accuracies in percentage points, signed."""
    if value is None:
        return "–"
    return value.signed(100)


def verdict(difference: Spread) -> str:
    """``2.1 ± 0.3 points ahead``, or that the seeds cannot tell the two apart."""
    if difference.sd is None:
        return f"{100 * abs(difference.mean):.1f} points {'ahead' if difference.mean > 0 else 'behind'} (one seed)"
    for sign, word in ((1, "ahead"), (-1, "behind")):
        if difference.clear(sign):
            size = replace(difference, mean=abs(difference.mean))
            return f"{percent(size)} points {word}"
    return f"not distinguishable ({points(difference)} points)"


def claim(truth: bool, sentence: str) -> str:
    """A sentence about the numbers, if it is true."""
    if not truth:
        raise SystemExit(f"tools/findings.py says what the records do not: {sentence!r}")
    return sentence
