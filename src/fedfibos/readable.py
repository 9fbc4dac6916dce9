"""Numbers as people read them."""

from __future__ import annotations


def percent(fraction: float | None) -> str:
    """An accuracy for reading: 0.8125 -> ``81.2 %``."""
    return "–" if fraction is None else f"{100 * fraction:.1f} %"


def duration(seconds: float) -> str:
    """Time for reading: ``42s``, ``3m05s``, ``2h07m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def counted(number: int, word: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
