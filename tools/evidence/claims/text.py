"""Claim 5: on text, the learning rate decides."""

from __future__ import annotations

from evidence.records import SUBMODELS
from evidence.studies import TEXT, Studies
from evidence.tables import TITLES, table
from evidence.words import claim, interval, verdict

FIARSES = ("fiarse", "fiarse-layer", "fiarse-head")


def section(studies: Studies) -> list[str]:
    """Text."""
    text, tuned = studies.text, studies.tuned
    at_one = [(name, text.difference(TEXT, "fedfibos-none", name, *SUBMODELS)) for name in FIARSES]
    at_own = [(name, tuned.difference(TEXT, "fedfibos-none", name, *SUBMODELS)) for name in FIARSES]
    rows = [["default minus", "at one rate for all", "verdict", "each at its own rate", "verdict"]]
    for (name, one_rate), (_, own) in zip(at_one, at_own, strict=True):
        rows.append([TITLES[name], interval(one_rate), verdict(one_rate), interval(own), verdict(own)])
    return [
        "## 5. On text, the learning rate decides",
        claim(
            all(verdict(value) == "ahead" for _, value in at_one)
            and all(verdict(value) == "not settled" for _, value in at_own),
            "The *default* is FedFIbOS with a shared score and no magnitude prior. At one learning rate for all "
            "methods, it is well ahead of every variant of FIARSE. Once each method's learning rate is tuned, no "
            "difference from any variant is settled.",
        ),
        table(rows),
        "*Limits.* The runs use two thirds of AG News's training texts, and two blocks of a small pretrained encoder. "
        "Rates were tuned on one seed. [AG News](evidence/ag_news.md) has the evidence.",
    ]
