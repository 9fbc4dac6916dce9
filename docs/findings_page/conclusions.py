"""What follows from the CIFAR-10 study: one function a statement, which is checked where it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.spread import Spread, spread
from findings_page.paper import in_the_paper
from findings_page.records import ADJUSTED, FULL, LOCAL, MAIN, SMALLEST, SUBMODELS, Study, last_evaluation
from findings_page.tables import TITLES, table
from findings_page.words import claim, percent, points, verdict

WAYS = ("held", "dense")
"""On which coordinates a true masking error is taken."""


def conclusions(study: Study) -> list[str]:
    """All of them."""
    return [
        "## What follows",
        against_fiarse(study),
        over_all_cells(study),
        algorithm1(study),
        *local_knowledge(study),
        diagnostics(study),
        surrogate(study),
        true_error(study),
        ssp(study),
        no_dead_layers(study),
        ranking_alone(study),
        mixed_masks(study),
        budget_per_layer(study),
        average_over_participants(study),
        prior(study),
        DEFAULT,
    ]


DEFAULT = (
    "**Which default?** One shared score, without the magnitude prior: it serves all capacities with one global "
    "model, needs one average instead of one a client, no coordinate outside a client's budget is ever trained or "
    "sent, and a pretrained model keeps its head. "
    "Where a device is judged on its own classes, let it add their log frequencies to the logits before it pays "
    "for scores of its own."
)


def against_fiarse(study: Study) -> str:
    """The paper's claim, in its own cell."""
    full, sub, tiny = (over(study, "fedfibos", "fiarse", keys) for keys in (FULL, SUBMODELS, SMALLEST))
    return claim(
        max(full.mean, sub.mean, tiny.mean) < 0.08,
        "**Ten points over magnitude? Not on images.** FedFIbOS with one shared score is "
        f"{verdict(full)} in the full model, {verdict(sub)} over the submodels, {verdict(tiny)} with the "
        f"smallest, all against FIARSE. In the paper it is {in_the_paper(study, MAIN)['gap']:.0f} points ahead.",
    )


def over_all_cells(study: Study) -> str:
    """The same in every cell."""
    said = []
    for name in ("fedfibos", "fedfibos-none"):
        found = [pooled(study, name, "fiarse", keys) for keys in (FULL, SUBMODELS, SMALLEST, LOCAL)]
        full, sub, tiny, local = map(verdict, found)
        said.append(
            f"({study.num_cells(name, 'fiarse')} cells, {found[0].n} seeds) {full} in the full model, {sub} over the "
            f"submodels, {tiny} with the smallest, {local} in local accuracy"
        )
    return f"**Over all splits and mixes**: {said[0]}. The library's default, without the prior: {said[1]}."


def algorithm1(study: Study) -> str:
    """Per-client scores."""
    full, sub, local = (over(study, "algorithm1", "fiarse", keys) for keys in (FULL, SUBMODELS, LOCAL))
    shares = [e["kept_shares"]["0.0625"]["classifier.weight"] for e in last_evaluation(study, MAIN, "algorithm1")]
    return claim(
        full.clear(1) and sub.clear(-1) and local.clear(1),
        f"**Algorithm 1 to the letter is another thing.** Against FIARSE, per-client scores are {verdict(full)} "
        f"in the full model and {verdict(local)} in local accuracy, with submodels that know their own "
        f"client's classes only ({verdict(sub)} over all classes): the smallest hold "
        f"{100 * sum(shares) / len(shares):.0f} % of the classifier's weights. Local "
        "accuracy rewards that, global accuracy of submodels punishes it.",
    )


def surrogate(study: Study) -> str:
    """Whether what selection minimises orders what it stands for."""
    capacities = ("0.5", "0.25", "0.125", "0.0625")
    orders = {
        c: [d["capacities"][c]["order_agreement"][way]["mean"] for d in study.diagnoses.values() for way in WAYS]
        for c in capacities
    }
    lower = all(_error(d, c, "ssp", way) < _error(d, c, "fisher", way) for d, c, way in _measured(study, capacities))
    return claim(
        min(orders["0.5"]) > 0.75 and min(orders["0.25"]) > 0.6 and max(orders["0.0625"]) < 0.35 and lower,
        "**For small submodels the surrogate stops standing for the error.** At γ = .5 and .25 the order by ε is "
        f"mostly the order by the true masking error (agreement {min(orders['0.5']):.2f} and "
        f"{min(orders['0.25']):.2f} or more, in all models diagnosed, on held coordinates and on all); at γ = .125 "
        f"it is no better than chance or worse ({min(orders['0.125']):.2f} to {max(orders['0.125']):.2f}), at "
        f"γ = .0625 nearly the reverse ({max(orders['0.0625']):.2f} or less). The surrogate is a second-order "
        "expansion about the full model, and leaving out fifteen sixteenths of it is no small step. `ssp`, which "
        "weighs by the parameter itself as the expansion does, has a smaller true error than plain Fisher at every "
        "capacity.",
    )


def true_error(study: Study) -> str:
    """Whether the true masking error says which selection is good."""
    least = all(
        _error(d, c, "random", way) < _error(d, c, other, way)
        for d, c, way in _measured(study, ("0.0625",))
        for other in ("fisher", "ssp", "magnitude")
    )
    reached = study.spread(MAIN, "random", *SMALLEST)
    return claim(
        least and reached is not None and reached.mean < 0.11,
        "**Nor does the error decide there.** At γ = .0625 random masks have the smallest true error of all, and "
        f"{percent(reached)} accuracy. What the small submodels need is in neither "
        "number.",
    )


def _measured(study: Study, capacities: Sequence[str]) -> list[tuple[Mapping[str, Any], str, str]]:
    """Every diagnosed model with every capacity and both ways of taking an error."""
    return [(d, c, way) for d in study.diagnoses.values() for c in capacities for way in WAYS]


def _error(diagnosis: Mapping[str, Any], capacity: str, selection: str, way: str) -> float:
    return float(diagnosis["capacities"][capacity]["selections"][selection]["error"][way]["mean"])


def ssp(study: Study) -> str:
    """f̄²x̃² instead of f̄, both without the prior."""
    tiny, sub, full = (over(study, "ssp", "fedfibos-none", keys) for keys in (SMALLEST, SUBMODELS, FULL))
    return (
        f"**`ssp`** with the same shared score, both without the prior, is {verdict(tiny)} with the smallest capacity, "
        f"{verdict(sub)} over the submodels and {verdict(full)} in the full model, against the Fisher ranking."
    )


def no_dead_layers(study: Study) -> str:
    """Whether any submodel has nothing of a layer's weights."""
    dead = [
        layer
        for cell, methods in study.cells.items()
        for name in methods
        for e in last_evaluation(study, cell, name)
        for shares in e["kept_shares"].values()
        for layer, share in shares.items()
        if layer.endswith("weight") and share == 0.0
    ]
    return claim(
        not dead, "No layer's weights are dead here, at any capacity, under any of the selections, in any cell."
    )


def ranking_alone(study: Study) -> str:
    """Fisher and magnitude in one round."""
    full, sub, tiny = (over(study, "fedfibos", "magnitude", keys) for keys in (FULL, SUBMODELS, SMALLEST))
    at_chance = [value < 0.11 for value in study.numbers(MAIN, "magnitude-05", *FULL).values()]
    return claim(
        full.mean > over(study, "fedfibos", "fiarse", FULL).mean and sorted(at_chance) == [False, True],
        "**With the ranking alone changed** (magnitude instead of Fisher in the same round, at FIARSE's "
        f"learning rate), Fisher is {verdict(full)} in the full model, {verdict(sub)} over the submodels and "
        f"{verdict(tiny)} with the smallest: more in the full model than "
        "against FIARSE, whose gradient factor is part of its strength. Magnitude is also the less stable: at "
        "FedFIbOS's learning rate one seed of two ended at chance, ",
    ) + claim(study.tuning["fiarse"][0.05] is None, "and FIARSE diverged there.")


def mixed_masks(study: Study) -> str:
    """Masks that are partly the client's own."""
    mixed = {
        "a blend of scores (a fifth the client's)": ("ssp-blend", "ssp"),
        "a budget half by the shared score, half by the client's": ("core-50", "fedfibos"),
        "a budget four fifths by the shared score": ("core-80", "fedfibos"),
    }
    gaps = {said: (over(study, *pair, LOCAL), over(study, *pair, SUBMODELS)) for said, pair in mixed.items()}
    return claim(
        all(of_local.mean > 0 > of_sub.mean for of_local, of_sub in gaps.values()),
        "**No mask tried is shown to have both.** Against the shared score alone, "
        + "; ".join(
            f"{said} is {verdict(of_local)} in local accuracy and {verdict(of_sub)} over the submodels"
            for said, (of_local, of_sub) in gaps.items()
        )
        + ".",
    )


def budget_per_layer(study: Study) -> str:
    """``scope = "layer"``."""
    full, tiny = (over(study, "fedfibos-layer", "fedfibos", keys) for keys in (FULL, SMALLEST))
    return claim(
        full.clear(-1),
        f"**A budget per layer** instead of one for all is {verdict(full)} in the full model and "
        f"{verdict(tiny)} with the smallest: most parameters lie in one layer, which needs its share least.",
    )


def average_over_participants(study: Study) -> str:
    """Line 20 to the letter."""
    full, sub, tiny = (over(study, "fedfibos-participants", "fedfibos", keys) for keys in (FULL, SUBMODELS, SMALLEST))
    return (
        f"**The paper's 1/A** (line 20) in place of the holders' average is {verdict(full)} in the full model, "
        f"{verdict(sub)} over the submodels and {verdict(tiny)} with the smallest."
    )


def prior(study: Study) -> str:
    """Line 2 and its absence."""
    full, sub = (pooled(study, "fedfibos-none", "fedfibos", keys) for keys in (FULL, SUBMODELS))
    return (
        f"**Without the magnitude prior** (line 2; all cells, {full.n} seeds) the shared score is "
        f"{verdict(full)} in the full model and {verdict(sub)} over the submodels: on these images "
        "nothing is seen of where the average begins. On text it decides everything (below)."
    )


def diagnostics(study: Study) -> str:
    """Jaccard similarity and CV_F beside the paper's."""
    found: dict[str, tuple[Spread, Spread, Spread]] = {}
    for name in ("algorithm1", "fedfibos", "fedfibos-none"):
        last = last_evaluation(study, MAIN, name)
        half, least = (spread(e["jaccard"][capacity] for e in last) for capacity in ("0.5", "0.0625"))
        cv = spread(e["cv_f"] for e in last)
        assert half is not None
        assert least is not None
        assert cv is not None
        found[name] = half, least, cv
    alike = all(abs(half.mean - 0.42) < 0.1 and abs(least.mean - 0.22) < 0.1 for half, least, _ in found.values())
    apart = {name: abs(cv.mean - 17.5) for name, (_, _, cv) in found.items()}

    def said(name: str) -> str:
        half, least, cv = found[name]
        return f"{half.text(1, 2)}, {least.text(1, 2)} and {cv.text(1, 1)}"

    return claim(
        alike and apart["fedfibos"] > 3 > max(apart["algorithm1"], apart["fedfibos-none"]),
        "**The paper's diagnostics are reproduced, and tell no reading from another.** Jaccard similarity with "
        "magnitude at γ = .5 and .0625, and CV_F, are .42, .22 and 17.5 in the paper; here "
        f"{said('algorithm1')} with Algorithm 1's per-client scores, {said('fedfibos-none')} with a shared score "
        f"without the prior, {said('fedfibos')} with one that has it. None has the paper's accuracies.",
    )


def local_knowledge(study: Study) -> list[str]:
    """How much of a local accuracy is knowing which classes the client has."""
    letter, shared = study.pooled("algorithm1", "fedfibos", *LOCAL), study.pooled("algorithm1", "fedfibos", *ADJUSTED)
    if letter is None or shared is None:
        return []
    rows = [["", *(TITLES[name] for name in ("fiarse", "fedfibos", "algorithm1"))]]
    for cell in study.in_order():
        for said, keys in (("local", LOCAL), ("local, adjusted", ADJUSTED)):
            found = [study.spread(cell, name, *keys) for name in ("fiarse", "fedfibos", "algorithm1")]
            rows.append([f"{study.where(cell)}: {said}", *map(percent, found)])
    raw = [
        (study.spread(cell, "fedfibos", *ADJUSTED), study.spread(cell, "algorithm1", *LOCAL)) for cell in study.cells
    ]
    return [
        claim(
            shared.mean < 0.15 * letter.mean
            and _all_rise(study)
            and all(a is not None and b is not None and a.mean > b.mean for a, b in raw),
            "**Its local accuracy is knowledge of the classes, which is free.** A client knows how often it has which "
            "class. Told that, by the log frequencies added to the logits, every method rises; over all splits and "
            f"mixes the lead of per-client scores over the shared one falls from {points(letter)} to {points(shared)} "
            "points, and in every cell the shared score with the frequencies is above the per-client scores without. "
            "So one setting does have both: one shared score, its submodels good for all classes, and every client's "
            "class frequencies at prediction.",
        ),
        table(rows),
    ]


def _all_rise(study: Study) -> bool:
    """Whether every method's local accuracy is higher with the class frequencies, in every cell."""
    pairs = [
        (study.spread(cell, name, *LOCAL), study.spread(cell, name, *ADJUSTED))
        for cell, methods in study.cells.items()
        for name in methods
    ]
    return all(plain is not None and told is not None and told.mean > plain.mean for plain, told in pairs)


def over(study: Study, one: str, other: str, keys: Sequence[str]) -> Spread:
    """``one`` minus ``other`` in the cell in which everything was run."""
    found = study.difference(MAIN, one, other, *keys)
    assert found is not None
    return found


def pooled(study: Study, one: str, other: str, keys: Sequence[str]) -> Spread:
    """The same, averaged over the cells."""
    found = study.pooled(one, other, *keys)
    assert found is not None
    return found
