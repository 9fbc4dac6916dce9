"""What a second study says of what the first one left open: on new seeds, and at another learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from findings_page.records import FULL, LOCAL, SMALLEST, SUBMODELS, Study
from findings_page.tables import TITLES, accuracies, table
from findings_page.words import percent, verdict

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


def text_tuned(study: Study, usual: Study) -> list[str]:
    """FIARSE's variants and the default on text, each at the rate that validation texts prefer, and at the study's."""
    parts = []
    ours = "fedfibos-none"
    for cell in study.in_order():
        rates = {name: records[0].experiment.local.lr for name, records in study.cells[cell].items()}
        names = [name for name in TITLES if name in rates]
        before = {name: usual.spread(cell, name, *SUBMODELS) for name in names}
        after = {name: study.spread(cell, name, *SUBMODELS) for name in names}
        gaps = {name: study.difference(cell, ours, name, *SUBMODELS) for name in names if name != ours}
        clear = [name for name, gap in gaps.items() if gap is not None and gap.clear(1)]
        best = {name: max(before[name].mean, after[name].mean) for name in names}
        rival = max(gaps, key=lambda name: best[name])
        rows = [["over the submodels", "its rate", "at its rate", f"at the study's {usual_rate(usual, cell):g}"]]
        rows += [[TITLES[n], f"{rates[n]:g}", percent(after[n]), percent(before[n])] for n in names]
        parts += [
            f"## {study.data}, {study.where(cell)} capacities, each at the rate that validation texts prefer",
            "Of the rates tried above, by one seed's accuracy over the submodels; here on the test set:",
            accuracies(study, cell),
            table(rows),
            "\n".join(f"- {_compared(study, cell, ours, name)}" for name in gaps),
            f"At these rates {TITLES[max(names, key=lambda name: after[name].mean)]} has the highest mean over the "
            f"submodels; the default is told apart from {listed(clear) if clear else 'none'} there. At whichever of "
            "the two rates is the better for each on the test set (which favours all) it is "
            f"{100 * abs(best[ours] - best[rival]):.1f} points {'above' if best[ours] > best[rival] else 'below'} the "
            f"best of FIARSE's ({TITLES[rival]}), between the means. What one seed's validation texts prefer need not "
            "carry over: a run at a high rate depends on who has which texts. FIARSE's variants have to be told "
            "what the head is, or the share of every tensor; the shared score puts the head in front by itself.",
        ]
    return parts


def listed(names: Sequence[str]) -> str:
    """Titles, in a sentence."""
    return " and ".join(TITLES[name] for name in names)


def usual_rate(study: Study, cell: tuple[str, str]) -> float:
    """The learning rate of all methods in a study that has one for all."""
    (rate,) = {records[0].experiment.local.lr for records in study.cells[cell].values()}
    return float(rate)


def _compared(study: Study, cell: tuple[str, str], one: str, other: str) -> str:
    found = {place: study.difference(cell, one, other, *keys) for place, keys in PLACES.items()}
    said = ", ".join(f"{verdict(gap)} {place}" for place, gap in found.items() if gap is not None)
    return f"{TITLES[one]} against {TITLES[other]}: {said}." if said else "Not both have finished."
