"""Which examples the studies were run on, where these are not the published ones."""

from __future__ import annotations

import json
from pathlib import Path

from findings_page.words import claim


def the_data(counted: Path) -> list[str]:
    """The paragraph, from the output of ``fedfibos data --count``."""
    found = json.loads(counted.read_text())
    images = [part for name in ("cifar10", "cifar100") for part in found[name].values()]
    text = found["ag_news"]
    here, published = text["train"]["examples"], text["train"]["published"]
    return [
        "## The data",
        claim(
            all(part["examples"] == part["published"] for part in images),
            "CIFAR-10 and CIFAR-100 are complete, but not the published bytes: their images went through JPEG (quality "
            "95, no chroma subsampling, about 40 dB from the published pixels; 111 of CIFAR-10's through quality 75).",
        )
        + claim(
            text["test"]["examples"] == text["test"]["published"],
            f" **AG News is {100 * here / published:.1f} % of its training set** ({here:,} of {published:,} texts, put "
            "together from partial copies; the test set is complete): its numbers are not comparable with those of "
            "others. Counted by `fedfibos data --count` (`results/data.json`).",
        ),
    ]
