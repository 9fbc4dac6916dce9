"""Numbers as people read them."""

from __future__ import annotations

import re

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Of numbers of bytes."""


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


def short_text(number: float) -> str:
    """A number to three digits with its thousands as a letter: 1234567 -> ``1.23 M``; 0.00123 -> ``0.0012``."""
    if number >= 999.5 * 10**12:
        return f"{number:.3g}"
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 0.9995 * 10**power:
            return f"{_three_digits(number / 10**power)} {letter}"
    return _three_digits(number)


def _three_digits(number: float) -> str:
    """``1.23``, ``12.3``, ``123``; a whole number without decimals."""
    if number == int(number):
        return str(int(number))
    if number < 0.0995:
        return f"{number:.2g}"
    return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f}"


def bytes_text(number: float) -> str:
    """A number of bytes for reading: 1234567 -> ``1.23 MB``."""
    text = short_text(number)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def count_of(number: int, word: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def bytes_in(text: str) -> float:
    """A number of bytes as people write it: ``3MB`` -> 3,000,000; without a unit it is in bytes.

    Raises:
        ValueError: Anything else.
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)", text.strip())
    if found is None or (found[2] or "B") not in UNITS:
        raise ValueError(f"a number of bytes must be one such as 3000000, 3MB, 1.5GB or 512KiB, got {text!r}")
    return float(found[1]) * UNITS[found[2] or "B"]
