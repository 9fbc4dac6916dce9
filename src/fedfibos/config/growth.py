"""A cohort that grows with the rounds."""

from __future__ import annotations

from fedfibos.common.validation import FieldError


def cohort_in(t: int, cohort: int, grow_from: int | None, grow_over: int | None) -> int:
    """Participants of round t: evenly from the first number to ``cohort``, rounded down.

    Args:
        t: Round counter, from 0.
        cohort: Of the round ``grow_over``, and of all after it.
        grow_from: Of the first round; None: ``cohort`` throughout.
        grow_over: Rounds until ``cohort`` is reached.

    Example:
        >>> [cohort_in(t, 10, 2, 4) for t in range(6)]
        [2, 4, 6, 8, 10, 10]
    """
    if grow_from is None or grow_over is None:
        return cohort
    return grow_from + (cohort - grow_from) * min(t, grow_over) // grow_over


def check_growth(cohort: int, grow_from: int | None, grow_over: int | None) -> None:
    """Raise ValueError for a cohort that would shrink, or of which one of the two is missing."""
    if (grow_from is None) != (grow_over is None):
        given, wanted = ("grow_from", "grow_over") if grow_over is None else ("grow_over", "grow_from")
        raise FieldError(wanted, f"{given} needs {wanted} beside it: cohort grows from grow_from over grow_over rounds")
    if grow_from is not None and grow_from > cohort:
        raise FieldError("grow_from", f"grow_from must be at most cohort, {cohort}, got {grow_from}")
