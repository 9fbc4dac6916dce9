"""docs/explanation/evidence/digits.md: heterogeneity, and settings that larger studies leave alone, on small data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.compared import PLACES, Comparison, comparisons
from evidence.records import LOCAL, SUBMODELS, Cell, Study
from evidence.tables import table
from evidence.words import claim, percent

TREND = ("fedfibos", "fiarse-nested", "saliency-nested", "channels-nested")
COLUMNS: Mapping[str, Sequence[str]] = {**PLACES, "local": LOCAL}
SETTINGS = ("settings", "non-uniform")

VARIANTS: Mapping[str, tuple[str, str]] = {
    "fedfibos-0": ("α = 0: only the last round's estimate", "fedfibos"),
    "fedfibos-50": ("α = .5", "fedfibos"),
    "fedfibos-95": ("α = .95", "fedfibos"),
    "fedfibos-99": ("α = .99", "fedfibos"),
    "fedfibos-examples": ("squared gradients per example (Equation 9)", "fedfibos"),
    "fedfibos-mask": ("absent labels masked", "fedfibos"),
    "fedfibos-adjust": ("logit-adjusted loss", "fedfibos"),
    "fedfibos-25": ("25 steps a round", "fedfibos"),
    "fedfibos-100": ("100 steps a round", "fedfibos"),
    "fiarse-released": ("as its code has it (`released`)", "fiarse"),
    "fiarse-mask": ("absent labels masked", "fiarse"),
    "fiarse-adjust": ("logit-adjusted loss", "fiarse"),
    "fiarse-25": ("25 steps a round", "fiarse"),
    "fiarse-100": ("100 steps a round", "fiarse"),
}
"""Method of the study -> what is changed, and of which method."""


def page(trend: Study, settings: Study, tuning: Mapping[str, Mapping[float, float]]) -> str:
    """The page."""
    parts = [INTRODUCTION, "## By how unlike the clients are", TREND_TEXT, lead(trend)]
    for cell in trend.in_order():
        rows = [Comparison(f"{NAMES[name]} − FIARSE", trend, name, "fiarse", cell) for name in TREND]
        rows += [
            Comparison(f"{NAMES[name]} − FIARSE, nested steps", trend, name, "fiarse-nested", cell)
            for name in TREND[2:]
        ]
        parts += [
            f"### {trend.splits[cell[0]][0].upper()}{trend.splits[cell[0]][1:]}",
            _accuracies(trend, cell, ("fiarse", *TREND)),
            comparisons("difference", rows, PLACES, judged="mean of the submodels"),
        ]
    parts += ["## One setting at a time", SETTINGS_TEXT]
    parts.append(_accuracies(settings, SETTINGS, ("fedfibos", "fiarse")))
    for base in ("fedfibos", "fiarse"):
        rows = [Comparison(said, settings, name, base, SETTINGS) for name, (said, of) in VARIANTS.items() if of == base]
        head = f"{NAMES[base]} with the change, minus {NAMES[base]}"
        parts.append(comparisons(head, rows, COLUMNS, judged="mean of the submodels"))
    parts.append(lessons(settings))
    rows = [
        Comparison(said, settings, f"fedfibos{end}", f"fiarse{end}", SETTINGS)
        for end, said in (("", "5 steps a round"), ("-25", "25 steps"), ("-100", "100 steps"))
    ]
    parts += [STEPS_TEXT, comparisons("FedFIbOS minus FIARSE", rows, COLUMNS, judged="mean of the submodels")]
    parts += ["## Rates", RATES_TEXT, _rates(tuning), LIMITS]
    return "\n\n".join(parts) + "\n"


def lead(trend: Study) -> str:
    """Who leads, where the clients are least alike and where they are alike."""
    ends = [trend.in_order()[0], trend.in_order()[-1]]
    gaps = [trend.difference(cell, "saliency-nested", "fiarse", *SUBMODELS) for cell in ends]
    assert gaps[0] is not None
    assert gaps[1] is not None
    return claim(
        gaps[0].mean > gaps[1].mean and (gaps[0].interval() or (0.0, 0.0))[0] > 0,
        "Saliency with nested steps is ahead of FIARSE where each client has two classes. The lead shrinks as clients "
        "become more alike. Part of it is the training: FIARSE with nested steps has it too.",
    )


def lessons(settings: Study) -> str:
    """What the tables of single settings say, over the submodels."""

    def change(name: str) -> float:
        found = settings.difference(SETTINGS, name, VARIANTS[name][1], *SUBMODELS)
        assert found is not None
        return found.mean

    rates = ("fedfibos-0", "fedfibos-50", "fedfibos-95", "fedfibos-99")
    labels = ("fedfibos-mask", "fedfibos-adjust", "fiarse-mask", "fiarse-adjust")
    rounds = ("fedfibos-25", "fedfibos-100", "fiarse-25", "fiarse-100")
    said = [
        claim(max(map(change, rates)) < 0, "Of the five values of α the default, .8, has the highest mean."),
        claim(abs(change("fedfibos-examples")) < 0.01, "Equation 9 changes the mean by less than a point."),
        claim(max(map(change, labels)) < 0, "Both ways of treating absent labels cost accuracy at this rate."),
        claim(max(map(change, rounds)) < 0, "So do longer rounds."),
    ]
    return " ".join(said)


def _accuracies(study: Study, cell: Cell, names: Sequence[str]) -> str:
    rows = [["accuracy in %", "seeds", *COLUMNS]]
    for name in names:
        values = [percent(study.spread(cell, name, *keys)) for keys in COLUMNS.values()]
        rows.append([NAMES[name], str(len(study.cells[cell][name])), *values])
    return table(rows)


def _rates(tuning: Mapping[str, Mapping[float, float]]) -> str:
    known = sorted({rate for by_rate in tuning.values() for rate in by_rate})
    rows = [["method", *(f"lr {rate}" for rate in known)]]
    for method, by_rate in sorted(tuning.items()):
        best = max(by_rate.values())
        texts = [f"{100 * by_rate[rate]:.1f}" for rate in known]
        cells = [f"**{text}**" if by_rate[rate] == best else text for rate, text in zip(known, texts, strict=True)]
        rows.append([NAMES[method], *cells])
    return table(rows)


NAMES = {
    "fiarse": "FIARSE",
    "fiarse-nested": "FIARSE, nested steps",
    "fedfibos": "FedFIbOS (default)",
    "saliency-nested": "saliency, nested steps",
    "channels-nested": "channels, nested steps",
}

SPLITS = {
    "two-classes": "two classes",
    "three-classes": "three classes",
    "five-classes": "five classes",
    "dirichlet-0-3": "Dirichlet 0.3",
    "alike": "all alike",
}
"""From the least to the most alike."""

INTRODUCTION = """# Digits: heterogeneity, and one setting at a time

Some questions need many runs, and the studies on CIFAR-10 have few. This page asks them of scikit-learn's digits: ten
classes, 8 × 8 pixels, a small multilayer perceptron, 20 clients, mostly of small capacities. A run takes seconds. It is
generated by `python tools/findings.py` from `results/small`.

**The limit of this page.** The digits are easy. What is seen here is a hint of what to try, not a result about images.
[Nested steps, saliency and channels](../nested.md) shows how much of it holds on CIFAR-10."""

TREND_TEXT = """How does the lead over FIARSE depend on how unlike the clients are? Each method trains at its own
learning rate. A point is the mean difference in points of accuracy, paired by seed; its line is the 95 % interval,
cut off where it leaves the drawing.

![Accuracy minus FIARSE's by how unlike the clients are](../../trend.svg)"""

SETTINGS_TEXT = """Two classes a client. One setting is changed at a time, and all runs have the same learning rate and
the same number of local steps in all. The runs without a change:"""

STEPS_TEXT = """With longer rounds there are fewer of them, and so fewer estimates and fewer merges:"""

RATES_TEXT = """Accuracy on held-out training examples, mean over the submodels, in %, seed 0
(`experiments/small/digits-heterogeneity-tuning.toml`), with two classes a client. The best of each line is bold. It is
the rate for all splits, so the other splits may have better ones:"""

LIMITS = """## Run it again

    fedfibos sweep experiments/small/digits-heterogeneity-tuning.toml --out results/small/digits-heterogeneity-tuning
    fedfibos sweep experiments/small/digits-heterogeneity.toml --out results/small/digits-heterogeneity
    fedfibos sweep experiments/small/digits-settings.toml --out results/small/digits-settings
    python tools/findings.py"""
