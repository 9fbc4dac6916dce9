"""The same question with normalisation, with a hundred classes, and with text."""

from __future__ import annotations

from collections.abc import Sequence

from fedfibos.common.statistics import Spread, spread
from findings_page.paper import paper_says
from findings_page.records import (
    ADJUSTED,
    FULL,
    LOCAL,
    MAIN,
    SMALLEST,
    SUBMODELS,
    Cell,
    Study,
    entry,
    last_evaluation,
)
from findings_page.tables import TITLES, accuracies, by_capacity, rates, table
from findings_page.words import claim, percent, points, verdict

POOLER = "network.bert.pooler.dense.weight"
TENSORS = {
    "word embeddings": "network.bert.embeddings.word_embeddings.weight",
    "queries, block 1": "network.bert.encoder.layer.0.attention.self.query.weight",
    "inner layer, block 1": "network.bert.encoder.layer.0.intermediate.dense.weight",
    "inner layer, block 2": "network.bert.encoder.layer.1.intermediate.dense.weight",
    "pooler": POOLER,
    "classifier": "network.classifier.weight",
}


def normalised(study: Study, without: Study) -> list[str]:
    """CIFAR-10 with GroupNorm, and what it changes."""
    parts = []
    for cell in study.in_order():
        parts.append(f"## With normalisation: {study.data}, {study.where(cell)} capacities")
        if cell == MAIN:
            parts += [
                "The same LeNet with GroupNorm after each convolution (277,658 parameters), the sliced methods with "
                "their scaler. Its hidden layer, with most of the parameters, has no normalisation to undo that (in "
                "their authors' models one follows each scaler; the library warns), which holds the sliced methods "
                "back here. Learning rates were chosen as above:",
                rates(study),
            ]
        else:
            parts.append("Learning rates are those of two classes a client.")
        parts += [
            accuracies(study, cell),
            f"Fisher against magnitude: {against_fiarse(study, cell)}.",
            f"What normalisation changes in the full model, seed by seed: {_changes(study, without, cell)}.",
        ]
    return parts


def _changes(study: Study, without: Study, cell: Cell) -> str:
    """Full-model accuracy with normalisation minus that without, of every method."""
    said = []
    for name in (n for n in TITLES if n in study.cells[cell]):
        one, other = study.numbers(cell, name, *FULL), without.numbers(cell, name, *FULL)
        gap = spread(one[seed] - other[seed] for seed in sorted(one.keys() & other.keys()))
        said.append(f"{TITLES[name]} {points(gap)}")
    return "; ".join(said)


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
    return f"{TITLES[one]} is " + ", ".join(said) if said else "not both were run"


def ag_news(study: Study) -> list[str]:
    """A pretrained encoder."""
    parts: list[str] = []
    for cell in study.in_order():
        first = next(iter(study.cells[cell].values()))[0].experiment
        parts += [
            f"## {study.data}, {study.where(cell)} capacities",
            "The first two blocks of all-MiniLM-L6-v2 (15.6 million parameters, 11.7 of them word embeddings) with its "
            f"pooler and a new head, texts of {first.model.options['max_length']} tokens, {first.federation.clients} "
            f"clients, {first.federation.cohort} a round, {first.federation.rounds} rounds of {first.local.steps} "
            f"AdamW steps, one learning rate for all methods ({first.local.lr:g}; others below), α = .8. Chance is 25.",
            accuracies(study, cell),
            *(few_rounds(study, cell) if "algorithm1" in study.cells[cell] else []),
            paper_says(study, cell),
            "Global accuracy by capacity:",
            by_capacity(study, cell),
        ]
        if "fedfibos-none" in study.cells[cell]:
            parts += tuned_on_text(study, first.local.lr) if cell[1] == "uniform" else []
            parts += fisher_on_text(study, cell)
            parts += [dead_layers(study, cell), *what_it_holds(study, cell)] if cell[1] == "uniform" else []
    return parts


def few_rounds(study: Study, cell: Cell) -> list[str]:
    """What per-client scores are after so few rounds."""
    federation = study.cells[cell]["algorithm1"][0].experiment.federation
    alike = [min(e["jaccard"].values()) for e in last_evaluation(study, cell, "algorithm1")]
    return [
        claim(
            min(alike) > 0.95,
            f"A client takes part in {federation.cohort * federation.rounds / federation.clients:.1f} rounds on "
            "average, so its own score hardly leaves the magnitudes that it begins with: Algorithm 1 is a selection "
            f"by magnitude here (Jaccard similarity {min(alike):.2f} or more at every capacity).",
        )
    ]


def tuned_on_text(study: Study, rate: float) -> list[str]:
    """What the learning rate does to the comparison, on training texts that no client got."""
    found = {
        name: {lr: entry(record.final, SUBMODELS) for lr, record in by_rate.items() if record is not None}
        for name, by_rate in study.tuning.items()
    }
    best = {name: max(value for value in by_rate.values() if value is not None) for name, by_rate in found.items()}
    ours, here = "fedfibos-none", found.get("fedfibos-none", {}).get(rate)
    if here is None:
        return []
    others = {name: value for name, value in best.items() if name != ours}
    above = [TITLES[name] for name, value in others.items() if value > here]
    nearest = max(others, key=lambda name: others[name])
    at_the_edge = [name for name in TITLES if name in found and best[name] == found[name][max(found[name])]]
    return [
        "Other learning rates, on a fiftieth of the training texts that no client got (seed 0; accuracy over the "
        "submodels, the highest bold):",
        rates(study),
        claim(
            best[ours] > others[nearest],
            f"With each at its best rate FedFIbOS without the prior has {100 * best[ours]:.1f}, the nearest of the "
            f"others {100 * others[nearest]:.1f} ({TITLES[nearest]}); at the study's {rate:g} it has {100 * here:.1f}, "
            f"{'above all others at their best' if not above else 'below ' + ' and '.join(above) + ' at its best'}. "
            f"One rate for all is unkind to FIARSE over all parameters: {100 * best['fiarse']:.1f} here at best, where "
            f"at the study's it has {percent(study.spread(('dirichlet', 'uniform'), 'fiarse', *SUBMODELS))} on the "
            "test set. "
            + (
                "Best at the largest rate that was tried of them, and perhaps better still at a larger one: "
                f"{'; '.join(TITLES[name] for name in at_the_edge)}."
                if at_the_edge
                else "No best rate is the largest tried."
            ),
        ),
    ]


def fisher_on_text(study: Study, cell: Cell) -> list[str]:
    """How far Fisher is ahead of magnitude, whatever is done for the latter."""
    rows = [["minus", "seeds", "global, full", "global, submodels"]]
    gaps: dict[str, tuple[Spread, Spread]] = {}
    for name in (n for n in TITLES if n in study.cells[cell] and n != "fedfibos-none"):
        full, sub = (study.difference(cell, "fedfibos-none", name, *keys) for keys in (FULL, SUBMODELS))
        if full is not None and sub is not None:
            gaps[name] = full, sub
            cells = (f"**{points(gap)}**" if gap.clear(1) else points(gap) for gap in (full, sub))
            rows.append([TITLES[name], str(full.n), *cells])
    said = [
        f"{TITLES[name]}: {verdict(full)} in the full model, {verdict(sub)} over the submodels"
        for name, (full, sub) in gaps.items()
        if name.startswith("fiarse")
    ]
    return [
        claim(
            all(full.mean > 0 and sub.mean > 0.04 for full, sub in gaps.values()),
            "**Fisher against magnitude on text, at this rate.** A shared score without the prior has the highest mean "
            "of all, in the full model and over the submodels. Against "
            + "; ".join(said)
            + ". Differences in percentage points, "
            "paired by seed; bold where a paired t-test says ahead at the 95 % level."
            + (
                " Seeds 3 and 4 were added where the first three had not told the lines apart, which makes the test a "
                "little too kind (Pocock's bound for two looks asks for p < .029):"
                if cell[1] == "uniform"
                else ""
            ),
        ),
        table(rows),
    ]


def dead_layers(study: Study, cell: Cell) -> str:
    """Why the ranking by magnitude fails."""
    shares = {
        name: max(e["kept_shares"]["0.0625"][POOLER] for e in last_evaluation(study, cell, name))
        for name in ("fiarse", "fedfibos")
    }
    smallest = [study.spread(cell, name, *SMALLEST) for name in shares]
    full, held, ours = (study.spread(cell, name, *SUBMODELS) for name in ("fiarse", "fiarse-head", "fedfibos-none"))
    by_layer = [study.spread(cell, name, *SMALLEST) for name in ("fedfibos-layer", "fiarse-layer")]
    quarter = study.spread(cell, "fiarse", "global_accuracy", "submodels", "0.25", "last")
    tuned = study.tuning["fiarse"][0.001]
    assert tuned is not None
    faster = entry(tuned.final, SMALLEST) or 0.0
    assert full is not None
    assert held is not None
    assert ours is not None
    return claim(
        max(shares.values()) < 0.001
        and all(value is not None and abs(value.mean - 0.25) < 1e-9 for value in smallest)
        and full.mean < held.mean < ours.mean,
        "**Part of why: magnitude drops the head.** The pooler's weights are smaller than nearly all others, so the "
        "small submodels of a ranking over all parameters hold none of them (less than .1 % at γ = .0625), pass no "
        "gradient and predict one class: 25.0 exactly. The magnitude prior does the same to FedFIbOS, as magnitudes "
        "are far larger than squared gradients (after 30 rounds .8³⁰ = .1 % of them is left, after the paper's 300 "
        "nothing is); without it, a full-size client's first gradients put the head in front. The engine warns of "
        "such layers. FIARSE's own code holds the head whole and ranks in groups, and its authors report about 90 "
        "on this task (RoBERTa-base, four sizes); the 68 and 46 that the paper gives it may be this. It is not all: "
        f"holding the head brings FIARSE from {percent(full)} to {percent(held)} over the submodels, the shared "
        f"score has {percent(ours)}; with a budget per layer both hold the same share of the head, and FedFIbOS with "
        f"the prior has {percent(by_layer[0])} with the smallest capacity where FIARSE has {percent(by_layer[1])}; "
        f"and FIARSE at γ = .25 has {percent(quarter)} with hardly any of the pooler. At twice the learning rate "
        f"FIARSE has {100 * faster:.1f} with the smallest capacity (validation, one seed), with as little of the "
        "pooler: how much is lost with it depends on the rate. What makes the rest was not found.",
    )


def what_it_holds(study: Study, cell: Cell) -> list[str]:
    """Where the smallest budget goes."""
    rows = [["selection", *TENSORS]]
    for name in ("fiarse", "fiarse-layer", "fiarse-head", "fedfibos", "fedfibos-none"):
        if name in study.cells[cell]:
            kept = [e["kept_shares"]["0.0625"] for e in last_evaluation(study, cell, name)]
            found = [spread(shares.get(tensor, 1.0) for shares in kept) for tensor in TENSORS.values()]
            rows.append([TITLES[name], *("–" if share is None else f"{100 * share.mean:.1f} %" for share in found)])
    return [
        "Share of the weights that submodels of capacity .0625 hold. Rows of words that a client has not seen have no "
        "gradient, so Fisher spends less on the embeddings and more on what every text goes through:",
        table(rows),
    ]
