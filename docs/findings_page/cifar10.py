"""CIFAR-10: what was run, what follows, the tables, the mechanism."""

from __future__ import annotations

from fedfibos.spread import Spread, spread
from findings_page.paper import in_the_paper, paper_says
from findings_page.records import ACCURACIES, MAIN, Study, clear, last_evaluation
from findings_page.tables import (
    TITLES,
    accuracies,
    by_capacity,
    differences,
    errors,
    kept,
    precision,
    rates,
    similarity,
    table,
)
from findings_page.words import claim, percent, points, verdict


def opening(study: Study) -> list[str]:
    """What was run, and with which learning rates."""
    first = next(iter(study.cells[MAIN].values()))[0]
    runs = [record for methods in study.cells.values() for group in methods.values() for record in group]
    commits = sorted({str(record.environment["commit"])[:7] for record in runs})
    made, local, federation = first.environment, first.experiment.local, first.experiment.federation
    return [
        "## The study",
        f"CIFAR-10, {len(runs)} runs beside the ceilings: {federation.clients} clients, {federation.cohort} a round, "
        f"{federation.rounds} rounds of {local.steps} steps of {local.batch_size} images, SGD with momentum "
        f"{local.momentum:g}, cosine schedule, {local.precision}; the LeNet of McMahan et al. at half the width "
        "(277,610 parameters; no normalisation, so the sliced methods run without the scaler). Capacities 1, 1/2, 1/4, "
        "1/8, 1/16. Submodels of one client a capacity are evaluated where they are personal. "
        f"{made['cpu']}, one core a run, torch {made['torch']}, commits {', '.join(commits)}. It is not the "
        "paper's scale (ResNet-18, 800 rounds of longer training): orders and mechanisms can be compared, not figures.",
        "Learning rates were chosen per method on a tenth of the training data that no client got (two classes a "
        "client, non-uniform, 240 rounds, seed 0). Accuracy there over the submodels, the chosen one bold:",
        rates(study),
    ]


def conclusions(study: Study) -> list[str]:
    """What the tables say; every sentence about numbers is checked against them."""
    full, submodels, smallest, local = (ACCURACIES[key] for key in list(ACCURACIES)[:4])

    def over(one: str, other: str, keys: tuple[str, ...]) -> Spread:
        found = study.difference(MAIN, one, other, *keys)
        assert found is not None
        return found

    def value(method: str, keys: tuple[str, ...]) -> Spread:
        found = study.spread(MAIN, method, *keys)
        assert found is not None
        return found

    def pooled(keys: tuple[str, ...]) -> Spread:
        found = study.pooled("fedfibos", "fiarse", *keys)
        assert found is not None
        return found

    shared, letter = over("fedfibos", "fiarse", full), over("algorithm1", "fiarse", full)
    sub, tiny = over("fedfibos", "fiarse", submodels), over("fedfibos", "fiarse", smallest)
    letter_sub, letter_local = over("algorithm1", "fiarse", submodels), over("algorithm1", "fiarse", local)
    ssp_tiny = over("ssp", "fedfibos", smallest)
    orders = {
        c: [d["capacities"][c]["order_agreement"][way]["mean"] for d in study.diagnoses.values() for way in WAYS]
        for c in ("0.5", "0.25", "0.125", "0.0625")
    }
    random_least = all(
        d["capacities"]["0.0625"]["selections"]["random"]["error"][way]["mean"]
        < d["capacities"]["0.0625"]["selections"][other]["error"][way]["mean"]
        for d in study.diagnoses.values()
        for other in ("fisher", "ssp", "magnitude")
        for way in WAYS
    )
    lower = all(
        d["capacities"][c]["selections"]["ssp"]["error"][way]["mean"]
        < d["capacities"][c]["selections"]["fisher"]["error"][way]["mean"]
        for d in study.diagnoses.values()
        for c in orders
        for way in WAYS
    )
    paper_gap = in_the_paper(study, MAIN)["gap"]
    sentences = [
        claim(
            max(shared.mean, sub.mean, tiny.mean) < 0.08,
            "**Ten points over magnitude? Not on images.** FedFIbOS with one shared score is "
            f"{verdict(shared)} in the full model, {verdict(sub)} over the submodels, {verdict(tiny)} with the "
            f"smallest, all against FIARSE. In the paper it is {paper_gap:.0f} points ahead.",
        ),
        f"**Over all splits and mixes** ({pooled(full).n} pairs of runs): {verdict(pooled(full))} in the full model, "
        f"{verdict(pooled(submodels))} over the submodels, {verdict(pooled(smallest))} with the smallest, "
        f"{verdict(pooled(local))} in local accuracy.",
        claim(
            clear(letter, 1) and clear(letter_sub, -1) and clear(letter_local, 1),
            f"**Algorithm 1 to the letter is another thing.** Against FIARSE, per-client scores are {verdict(letter)} "
            f"in the full model and {verdict(letter_local)} in local accuracy, with submodels that know their own "
            f"client's classes only ({verdict(letter_sub)} over all classes): the smallest hold "
            f"{_classifier(study):.0f} % of the classifier's weights, those of two classes. Local "
            "accuracy rewards that, global accuracy of submodels punishes it.",
        ),
        *local_knowledge(study),
        diagnostics(study),
        claim(
            min(orders["0.5"]) > 0.75 and min(orders["0.25"]) > 0.6 and max(orders["0.0625"]) < 0.35 and lower,
            "**For small submodels the surrogate stops standing for the error.** At γ = .5 and .25 the order by ε is "
            f"mostly the order by the true masking error (agreement {min(orders['0.5']):.2f} and "
            f"{min(orders['0.25']):.2f} or more, in all models diagnosed, on held coordinates and on all); at γ = .125 "
            f"it is no better than chance or worse ({min(orders['0.125']):.2f} to {max(orders['0.125']):.2f}), at "
            f"γ = .0625 nearly the reverse ({max(orders['0.0625']):.2f} or less). The surrogate is a second-order "
            "expansion about the full model, and leaving out fifteen sixteenths of it is no small step. `ssp`, which "
            "weighs by the parameter itself as the expansion does, has a smaller true error than plain Fisher at every "
            "capacity.",
        ),
        claim(
            random_least and value("random", smallest).mean < 0.11,
            "**Nor does the error decide there.** At γ = .0625 random masks have the smallest true error of all, and "
            f"{percent(value('random', smallest))} accuracy. What the small submodels need is in neither "
            "number.",
        ),
        f"**`ssp`** with the same shared score is {verdict(ssp_tiny)} with the smallest capacity and "
        f"{verdict(over('ssp', 'fedfibos', full))} in the full model, against the Fisher ranking.",
    ]
    dead = [
        share
        for cell, methods in study.cells.items()
        for name in methods
        for e in last_evaluation(study, cell, name)
        for shares in e["kept_shares"].values()
        for layer, share in shares.items()
        if layer.endswith("weight") and share == 0.0
    ]
    sentences.append(
        claim(not dead, "No layer's weights are dead here, at any capacity, under any of the selections, in any cell.")
    )
    one, two = over("fedfibos", "magnitude", full), over("fedfibos", "magnitude", submodels)
    unstable = study.numbers(MAIN, "magnitude-05", *full)
    sentences.append(
        claim(
            one.mean > shared.mean and sum(value < 0.11 for value in unstable.values()) == 1 and len(unstable) == 2,
            "**With the ranking alone changed** (magnitude instead of Fisher in the same round, each at its own "
            f"learning rate), Fisher is {verdict(one)} in the full model, {verdict(two)} over the submodels and "
            f"{verdict(over('fedfibos', 'magnitude', smallest))} with the smallest: more in the full model than "
            "against FIARSE, whose gradient factor is part of its strength. Magnitude is also the less stable: at "
            "FedFIbOS's learning rate one seed of two ended at chance, ",
        )
        + claim(study.tuning["fiarse"][".05"] is None, "and FIARSE diverged there.")
    )
    mixed = {
        "a blend of scores (a fifth the client's)": ("ssp-blend", "ssp"),
        "a budget half by the shared score, half by the client's": ("core-50", "fedfibos"),
        "a budget four fifths by the shared score": ("core-80", "fedfibos"),
    }
    gaps = {said: (over(*pair, local), over(*pair, submodels)) for said, pair in mixed.items()}
    sentences.append(
        claim(
            all(of_local.mean > 0 > of_sub.mean for of_local, of_sub in gaps.values()),
            "**No mask tried is shown to have both.** Against the shared score alone, "
            + "; ".join(
                f"{said} is {verdict(of_local)} in local accuracy and {verdict(of_sub)} over the submodels"
                for said, (of_local, of_sub) in gaps.items()
            )
            + ".",
        )
    )
    by_layer, layer_tiny = over("fedfibos-layer", "fedfibos", full), over("fedfibos-layer", "fedfibos", smallest)
    sentences.append(
        claim(
            clear(by_layer, -1),
            f"**A budget per layer** instead of one for all is {verdict(by_layer)} in the full model and "
            f"{verdict(layer_tiny)} with the smallest: most parameters lie in one layer, which needs its share least.",
        )
    )
    sentences.append(
        "**The paper's 1/A** (line 20) in place of the holders' average is "
        f"{verdict(over('fedfibos-participants', 'fedfibos', full))} in the full model, "
        f"{verdict(over('fedfibos-participants', 'fedfibos', submodels))} over the submodels and "
        f"{verdict(over('fedfibos-participants', 'fedfibos', smallest))} with the smallest."
    )
    without = [study.pooled("fedfibos-none", "fedfibos", *keys, least=1) for keys in (full, submodels)]
    assert without[0] is not None
    assert without[1] is not None
    sentences.append(
        f"**Without the magnitude prior** (line 2; {without[0].n} pairs of runs, all cells) the shared score is "
        f"{verdict(without[0])} in the full model and {verdict(without[1])} over the submodels: on these images "
        "nothing is seen of where the average begins. On text it decides everything (below)."
    )
    sentences.append(
        "**Which default?** One shared score, without the magnitude prior: it serves all capacities with one global "
        "model, needs one average instead of one a client, no coordinate outside a client's budget is ever computed or "
        "sent, and a pretrained model keeps its head. "
        '`criterion = "ssp"` is worth its one line where the smallest devices count. '
        "Where a device is judged on its own classes, let it add their log frequencies to the logits before it pays "
        "for scores of its own."
    )
    return ["## What follows", *sentences]


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
    local, adjusted = ACCURACIES["local"], ACCURACIES["local, adjusted"]
    letter, shared = study.pooled("algorithm1", "fedfibos", *local), study.pooled("algorithm1", "fedfibos", *adjusted)
    if letter is None or shared is None:
        return []
    rows = [["", *(TITLES[name] for name in ("fiarse", "fedfibos", "algorithm1"))]]
    for cell in study.in_order():
        for said, keys in (("local", local), ("local, adjusted", adjusted)):
            found = [study.spread(cell, name, *keys) for name in ("fiarse", "fedfibos", "algorithm1")]
            rows.append([f"{study.where(cell)}: {said}", *map(percent, found)])
    raw = [
        (study.spread(cell, "fedfibos", *adjusted), study.spread(cell, "algorithm1", *local)) for cell in study.cells
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
        (study.spread(cell, name, *ACCURACIES["local"]), study.spread(cell, name, *ACCURACIES["local, adjusted"]))
        for cell, methods in study.cells.items()
        for name in methods
    ]
    return all(plain is not None and told is not None and told.mean > plain.mean for plain, told in pairs)


def _classifier(study: Study) -> float:
    """Mean share of the classifier's weights that Algorithm 1's smallest submodels hold, in %."""
    shares = [e["kept_shares"]["0.0625"]["classifier.weight"] for e in last_evaluation(study, MAIN, "algorithm1")]
    return 100 * sum(shares) / len(shares)


def tables(study: Study) -> list[str]:
    """Accuracies of every cell, and paired differences."""
    parts = []
    for cell in study.in_order():
        parts += [f"## {study.data}, {study.where(cell)} capacities", accuracies(study, cell)]
        parts.append(paper_says(study, cell))
    parts += [
        "## Differences",
        "Percentage points, paired by seed: same partition, fleet and cohorts. “Ahead” and “behind” are said above "
        "where a paired t-test says so at the 95 % level. “All pairs” takes every seed of every cell with at least two "
        "as one sample.",
    ]
    for one, other, title in (
        ("fedfibos", "fiarse", "FedFIbOS (shared score) minus FIARSE"),
        ("fedfibos", "magnitude", "FedFIbOS minus magnitude in the same round"),
        ("algorithm1", "fiarse", "Algorithm 1 to the letter minus FIARSE"),
        ("algorithm1", "fedfibos", "Algorithm 1 to the letter minus FedFIbOS with a shared score"),
        ("ssp", "fedfibos", "`ssp` minus FedFIbOS"),
    ):
        parts += [f"**{title}**", differences(study, one, other)]
    return parts


def mechanism(study: Study) -> list[str]:
    """What the selections are like."""
    parts = [
        "## What becomes of the small capacities",
        "Global accuracy of the submodels, two classes a client, non-uniform:",
        by_capacity(study, MAIN),
        "Share of each layer's weights that submodels of capacity .0625 hold:",
        kept(study, MAIN, "0.0625"),
        "## Whose selection is it?",
        "Jaccard similarity with the selection of the same size by magnitude, and coefficients of variation, at the "
        "last evaluation (two classes a client, non-uniform):",
        similarity(study, MAIN),
    ]
    for name, diagnosis in study.diagnoses.items():
        parts += [
            f"## The surrogate and the error it stands for: the model of {TITLES[name]}",
            f"`fedfibos diagnose` at the last round, seed 0, {len(diagnosis['clients'])} clients. ε is what selection "
            "minimises (the Fisher-weighted weights that are left out); e the squared difference of the gradients with "
            "and without the mask, on the held coordinates or on all; mean ± sd over clients. The last columns: how "
            "often two of the selections are in the same order by ε and by e (Assumption 5; chance is .5).",
            errors(diagnosis),
        ]
    return parts


WAYS = ("held", "dense")
"""On which coordinates a true masking error is taken."""


def section(study: Study) -> list[str]:
    """All of it."""
    return [*opening(study), *conclusions(study), *tables(study), *mechanism(study), *precision(study)]
