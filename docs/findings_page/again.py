"""What a second study says of what the first one left open: on new seeds, and at another learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from findings_page.records import FULL, LOCAL, SMALLEST, SUBMODELS, Study
from findings_page.tables import TITLES, accuracies
from findings_page.words import claim, percent, verdict

PLACES: Mapping[str, Sequence[str]] = {
    "in the full model": FULL,
    "over the submodels": SUBMODELS,
    "with the smallest": SMALLEST,
    "in local accuracy": LOCAL,
}


def dense(study: Study) -> list[str]:
    """The default with estimates on all parameters, on seeds that suggested nothing."""
    parts = []
    for cell in study.in_order():
        parts += [
            f"## On new seeds: estimates on all parameters, {study.where(cell)} capacities",
            "With seeds 0 to 2 the shared score had the higher mean in everything where every client estimates it on "
            "all parameters, and was told apart in nothing (above, with the magnitude prior). The same question of the "
            "default, on seeds that suggested nothing (from 3 on; cells, fleet and rates as above):",
            accuracies(study, cell),
            _compared(study, cell, "fedfibos-none-dense", "fedfibos-none"),
            _compared(study, cell, "fedfibos-none", "fiarse"),
            _compared(study, cell, "fedfibos-none-dense", "fiarse"),
            *_worth(study, cell),
        ]
    return parts


def _worth(study: Study, cell: tuple[str, str]) -> list[str]:
    """Whether estimates on all parameters pay for what they cost."""
    one, other = "fedfibos-none-dense", "fedfibos-none"
    gaps = {place: study.difference(cell, one, other, *keys) for place, keys in PLACES.items()}
    sent = [study.spread(cell, name, "bytes", "up") for name in (one, other)]
    if sent[0] is None or sent[1] is None:
        return []
    price = f"a full-size backward pass on every device and {sent[0].mean / sent[1].mean:.1f} times the bytes up"
    ahead = [place for place, gap in gaps.items() if gap is not None and gap.clear(1)]
    if ahead:
        return [f"**So there is something in it** {' and '.join(ahead)}, for {price}."]
    return [f"**So nothing here says that it is worth its price**, {price}: the default stays as it is."]


def text_at_one_rate(study: Study, usual: Study) -> list[str]:
    """FIARSE and the default on text at the rate that validation texts prefer for both, and at the study's."""
    parts = []
    for cell in study.in_order():
        rate = next(iter(study.cells[cell].values()))[0].experiment.local.lr
        before = {name: usual.spread(cell, name, *SUBMODELS) for name in study.cells[cell]}
        after = {name: study.spread(cell, name, *SUBMODELS) for name in study.cells[cell]}
        fiarse, ours = "fiarse", "fedfibos-none"
        parts += [
            f"## {study.data}, {study.where(cell)} capacities, at the rate that validation texts prefer",
            f"{rate:g}, for FIARSE over all parameters and for the default alike, chosen on one seed, the largest that "
            "was tried for either; here on the test set:",
            accuracies(study, cell),
            _compared(study, cell, ours, fiarse),
            claim(
                after[fiarse].mean > before[fiarse].mean and after[ours].mean < before[ours].mean,
                "What one seed's validation texts prefer does not carry over (a run at so high a rate depends on who "
                f"has which texts): over the submodels FIARSE has {percent(after[fiarse])} against "
                f"{percent(before[fiarse])} at the study's rate, the default {percent(after[ours])} against "
                f"{percent(before[ours])}. At whichever rate is the better for each on the test set (which favours "
                f"both), that is {100 * (before[ours].mean - after[fiarse].mean):.1f} points between the means.",
            ),
        ]
    return parts


def _compared(study: Study, cell: tuple[str, str], one: str, other: str) -> str:
    found = {place: study.difference(cell, one, other, *keys) for place, keys in PLACES.items()}
    said = ", ".join(f"{verdict(gap)} {place}" for place, gap in found.items() if gap is not None)
    return f"{TITLES[one]} against {TITLES[other]}: {said}." if said else "Not both have finished."
