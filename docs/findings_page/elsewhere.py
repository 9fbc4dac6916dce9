"""The same question with normalisation, with a hundred classes, and with text."""

from __future__ import annotations

from collections.abc import Sequence

from findings_page.paper import paper_says
from findings_page.records import ACCURACIES, Cell, Study
from findings_page.tables import TITLES, accuracies, by_capacity, rates
from findings_page.words import verdict

FULL, SUBMODELS, SMALLEST, LOCAL, ADJUSTED = ACCURACIES.values()


def normalised(study: Study) -> list[str]:
    """CIFAR-10 with GroupNorm."""
    if not study.cells:
        return []
    (cell,) = study.cells
    return [
        f"## With normalisation: {study.data}, {study.where(cell)} capacities",
        "The same LeNet with GroupNorm after each convolution (277,658 parameters), the sliced methods with the scaler "
        "that their authors give them. Learning rates were chosen as above:",
        rates(study),
        accuracies(study, cell),
        f"Fisher against magnitude: {against_fiarse(study, cell)}.",
    ]


def cifar100(study: Study) -> list[str]:
    """A hundred classes."""
    parts = []
    for cell in study.in_order():
        parts += [
            f"## {study.data}, {study.where(cell)} capacities",
            "Model, rounds and learning rates of the CIFAR-10 study; the rates were not tuned again.",
            accuracies(study, cell),
            paper_says(study, cell),
            f"Fisher against magnitude: {against_fiarse(study, cell)}. {letter(study, cell)}",
        ]
    return parts


def against_fiarse(study: Study, cell: Cell) -> str:
    """FedFIbOS minus FIARSE in words."""
    places = {"in the full model": FULL, "over the submodels": SUBMODELS, "with the smallest": SMALLEST}
    return _compared(study, cell, "fedfibos", "fiarse", places | {"in local accuracy": LOCAL})


def letter(study: Study, cell: Cell) -> str:
    """Algorithm 1 beside the shared score in words."""
    places = {"in local accuracy": LOCAL, "in adjusted local accuracy": ADJUSTED, "over the submodels": SUBMODELS}
    return f"Algorithm 1 against the shared score: {_compared(study, cell, 'algorithm1', 'fedfibos', places)}."


def _compared(study: Study, cell: Cell, one: str, other: str, places: dict[str, Sequence[str]]) -> str:
    found = {place: study.difference(cell, one, other, *keys) for place, keys in places.items()}
    said = [f"{verdict(gap)} {place}" for place, gap in found.items() if gap is not None]
    return f"{TITLES[one]} is " + ", ".join(said)


def ag_news(study: Study) -> list[str]:
    """A pretrained encoder."""
    parts = []
    for cell in study.in_order():
        parts += [
            f"## {study.data}, {study.where(cell)} capacities",
            accuracies(study, cell),
            paper_says(study, cell),
            "By capacity:",
            by_capacity(study, cell),
        ]
    return parts
