"""Claim 4: Algorithm 1's local accuracy comes from knowing the client's classes."""

from __future__ import annotations

from evidence.records import ADJUSTED, LOCAL, Study
from evidence.tables import table
from evidence.words import claim, percent


def section(study: Study) -> list[str]:
    """Per-client scores."""
    names = {"fiarse": "FIARSE", "fedfibos": "shared score", "algorithm1": "Algorithm 1"}
    rows = [["", *(f"{said}, {what}" for said in names.values() for what in ("local", "adjusted"))]]
    raised = []
    for cell in study.in_order():
        found = [study.spread(cell, name, *keys) for name in names for keys in (LOCAL, ADJUSTED)]
        rows.append([study.where(cell), *map(percent, found)])
        raised.append(found)
    return [
        "## 4. Algorithm 1's local accuracy comes from knowing the client's classes",
        claim(
            all(told.mean > plain.mean for found in raised for plain, told in zip(found[::2], found[1::2], strict=True)
                if plain is not None and told is not None)
            and all(found[3].mean > found[4].mean for found in raised if found[3] and found[4]),
            "The paper's Algorithm 1 keeps a score for each client. Its submodels know their own client's classes and "
            "forget the others. But a client knows its class frequencies anyway. Adding their logarithms to the logits "
            "of the shared model gives more local accuracy than scores for each client.",
        ),
        "The table has local accuracy in %, as mean ± standard deviation over seeds: plain, and *adjusted*, with the "
        "log frequencies added. [Notation](notation.md#accuracies) defines both.",
        table(rows),
        "*Limits.* The adjustment needs the client's class frequencies at prediction.",
    ]  # fmt: skip
