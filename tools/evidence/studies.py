"""The studies that the findings are written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.records import (
    Study,
    load_ag_news,
    load_ag_news_tuned,
    load_cifar10,
    load_cifar100,
    load_dense,
    load_heterogeneity,
    load_nested,
    load_normalised,
)

TEXT = ("dirichlet", "uniform")
"""The cell of AG News."""


@dataclass(frozen=True)
class Studies:
    """All that the pages are written from.

    Attributes:
        images: CIFAR-10.
        dense: CIFAR-10 on new seeds.
        nested: Nested steps, saliency and channels, beside the same cells of the others.
        norm: CIFAR-10 with group normalisation.
        hundred: CIFAR-100.
        text: AG News.
        tuned: AG News, each method at a rate of its own.
        digits: Digits, by how unlike the clients are.
    """

    images: Study
    dense: Study
    nested: Study
    norm: Study
    hundred: Study
    text: Study
    tuned: Study
    digits: Study


def load_studies(small: Path, digits: Mapping[str, str]) -> Studies:
    """All of them, from ``results/small``; ``digits`` has the names of its splits."""
    return Studies(
        images=load_cifar10(small),
        dense=load_dense(small),
        nested=load_nested(small),
        norm=load_normalised(small),
        hundred=load_cifar100(small),
        text=load_ag_news(small),
        tuned=load_ag_news_tuned(small),
        digits=load_heterogeneity(small, digits),
    )
