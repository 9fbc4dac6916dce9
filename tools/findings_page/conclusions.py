"""What follows from the CIFAR-10 study: one function a statement, which is checked where it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedfibos.common.statistics import Spread, spread
from findings_page.diagnosed import diagnostics, surrogate, true_error, what_is_selected
from findings_page.paper import in_the_paper
from findings_page.records import (
    ADJUSTED,
    CAPACITIES,
    FULL,
    LOCAL,
    MAIN,
    SMALLEST,
    SUBMODELS,
    Study,
    last_evaluation,
)
from findings_page.tables import TITLES, table
from findings_page.words import claim, percent, points, verdict


def conclusions(study: Study) -> list[str]:
    """All of them."""
    return [
        "## What follows",
        against_fiarse(study),
        *over_all_cells(study),
        algorithm1(study),
        one_at_a_time(study),
        *local_knowledge(study),
        diagnostics(study),
        surrogate(study),
        true_error(study),
        what_is_selected(study),
        ssp(study),
        no_dead_layers(study),
        ranking_alone(study),
        mixed_masks(study),
        budget_per_layer(study),
        average_over_participants(study),
        prior(study),
        bytes_sent(study),
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


def over_all_cells(study: Study) -> list[str]:
    """The same in every cell, capacity by capacity, and as the fleet's clients see it."""
    columns: dict[str, Sequence[str]] = {"γ = 1 (full)": FULL}
    columns |= {f"γ = {c}": ("global_accuracy", "submodels", c, "last") for c in CAPACITIES[1:]}
    columns |= {"mean over capacities": SUBMODELS, "local": LOCAL, "local, adjusted": ADJUSTED}
    rows = [["minus FIARSE", *columns, "mean over clients"]]
    stays = []
    for name in ("fedfibos", "fedfibos-none"):
        found = [pooled(study, name, "fiarse", keys) for keys in columns.values()]
        found.append(over_clients(study, name, "fiarse"))
        rows.append([TITLES[name], *(f"**{points(v)}**" if v.clear(1) or v.clear(-1) else points(v) for v in found)])
        kept = holm(dict(zip([*columns, "mean over clients"], found, strict=True)))
        stays.append(f"{', '.join(kept) or 'nothing'} ({TITLES[name]})")
    full, tiny, mean = (pooled(study, "fedfibos", "fiarse", keys) for keys in (FULL, SMALLEST, SUBMODELS))
    return [
        claim(
            full.clear(1) and tiny.clear(-1) and not mean.clear(1),
            f"**Over all splits and mixes** ({study.num_cells('fedfibos', 'fiarse')} cells, {full.n} seeds) the "
            "difference falls with the capacity: the full model gains, the small submodels lose. Whether the submodels "
            "as a whole are behind depends on the weights: every capacity counts the same in “mean over capacities”, "
            "in “mean over clients” every client does, and in a non-uniform fleet most are small. Bold where a paired "
            "t-test, one at a time, tells the two apart; with Holm's correction over a line's "
            f"{len(columns) + 1} numbers there remain: {'; '.join(stays)}.",
        ),
        table(rows),
    ]


def over_clients(study: Study, one: str, other: str) -> Spread:
    """``one`` minus ``other``: global accuracy of a client's submodel, mean over the fleet's clients and the cells."""
    by_cell = []
    for cell, methods in study.cells.items():
        if one in methods and other in methods:
            shares = methods[one][0].experiment.federation.capacities
            gaps: dict[int, float] = {}
            for capacity, share in shares.items():
                keys = ("global_accuracy", "submodels", str(capacity), "last")
                a, b = study.numbers(cell, one, *keys), study.numbers(cell, other, *keys)
                for seed in a.keys() & b.keys():
                    gaps[seed] = gaps.get(seed, 0.0) + share * (a[seed] - b[seed])
            by_cell.append(gaps)
    seeds = set.intersection(*(set(gaps) for gaps in by_cell))
    found = spread(sum(gaps[seed] for gaps in by_cell) / len(by_cell) for seed in sorted(seeds))
    assert found is not None
    return found


def holm(found: Mapping[str, Spread]) -> list[str]:
    """Which differences are clear at the 95 % level taken together (Holm's step-down procedure)."""
    ordered = sorted(found, key=lambda name: found[name].p_value())
    kept: list[str] = []
    for position, name in enumerate(ordered):
        if found[name].p_value() >= 0.05 / (len(ordered) - position):
            break
        kept.append(name)
    return [name for name in found if name in kept]


def algorithm1(study: Study) -> str:
    """Per-client scores."""
    full, sub, local = (over(study, "algorithm1", "fiarse", keys) for keys in (FULL, SUBMODELS, LOCAL))
    head = {
        name: spread(e["kept_shares"]["0.0625"]["classifier.weight"] for e in last_evaluation(study, MAIN, name))
        for name in ("algorithm1", "core-50", "fiarse")
    }
    reached = {name: study.spread(MAIN, name, *SMALLEST) for name in ("algorithm1", "core-50")}
    return claim(
        full.clear(1) and sub.clear(-1) and local.clear(1),
        f"**Algorithm 1 is another thing.** Against FIARSE its per-client scores are {verdict(full)} in the full model "
        f"and {verdict(local)} in local accuracy, with submodels that know their own client's classes only "
        f"({verdict(sub)} over all classes). Local accuracy rewards that, global accuracy of submodels punishes it. It "
        f"is not for want of a head: the smallest hold {percent(head['algorithm1'])} % of the classifier's weights, "
        f"those of a budget half shared {percent(head['core-50'])} %, FIARSE's {percent(head['fiarse'])} %, and the "
        f"first two have {percent(reached['algorithm1'])} and {percent(reached['core-50'])} over all classes. It is "
        'not the letter of line 14, which zeroes f̂ off the mask (`fisher = "literal"`): that freezes every mask (a '
        "theorem, `tests/theory`), and was not run.",
    )


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
        not dead,
        "No layer's weights are dead at the last evaluation, at any capacity, under any of the selections, in any cell "
        "(of personal masks those of each capacity's first client are on record).",
    )


def one_at_a_time(study: Study) -> str:
    """From the shared score to Algorithm 1, one setting after another."""
    dense = [over(study, "fedfibos-dense", "fedfibos", keys) for keys in (FULL, SUBMODELS, SMALLEST)]
    own = [over(study, "algorithm1-holders", "fedfibos-dense", keys) for keys in (FULL, SUBMODELS, LOCAL)]
    divided = [over(study, "algorithm1", "algorithm1-holders", keys) for keys in (FULL, SUBMODELS, LOCAL)]
    whole = over(study, "algorithm1", "fedfibos", FULL)
    return claim(
        min(gap.mean for gap in dense) > 0.01
        and abs(own[0].mean) < 0.005
        and own[1].clear(-1)
        and own[2].clear(1)
        and not any(gap.clear(1) or gap.clear(-1) for gap in divided),
        "**One setting at a time**, from the shared score to Algorithm 1. f̂ of all parameters instead of the held "
        f"ones: {points(dense[0])} points in the full model, {points(dense[1])} over the submodels, "
        f"{points(dense[2])} with the smallest (higher in every mean, and in none told apart by three seeds; it "
        "costs a full-size backward pass and f̂ of all parameters sent). Then every client's own score instead of "
        f"one: {points(own[0])}, {points(own[1])} and {points(own[2])} in local accuracy. Then 1/A instead of the "
        f"holders: {points(divided[0])}, {points(divided[1])} and {points(divided[2])} in local accuracy. So what "
        f"Algorithm 1 is ahead by in the full model ({points(whole)}) comes from where f̂ is taken, and what it "
        "knows of its client from whose score it is.",
    )


def ranking_alone(study: Study) -> str:
    """Fisher and magnitude in one round at one learning rate."""
    full, sub, tiny = (over(study, "fedfibos-025", "magnitude", keys) for keys in (FULL, SUBMODELS, SMALLEST))
    at_chance = [value < 0.11 for value in study.numbers(MAIN, "magnitude-05", *FULL).values()]
    return claim(
        sorted(at_chance) == [False, True] and full.mean > 0.03,
        "**With the ranking alone changed** (magnitude instead of Fisher in the same round, both at FIARSE's "
        f"learning rate), Fisher is {verdict(full)} in the full model, {verdict(sub)} over the submodels and "
        f"{verdict(tiny)} with the smallest. Magnitude is also the less stable: at FedFIbOS's learning rate one seed "
        "of two ended at chance, ",
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
        "nothing is seen of where the average begins. On text the one run with the prior is far behind (below)."
    )


def bytes_sent(study: Study) -> str:
    """Equal budgets of parameters are not equal bytes."""
    names = ("fiarse", "fedfibos", "algorithm1")
    up = {name: study.spread(MAIN, name, "bytes", "up") for name in names}
    ours, theirs, letter = (up[name] for name in ("fedfibos", "fiarse", "algorithm1"))
    assert ours is not None
    assert theirs is not None
    assert letter is not None
    return (
        "**Equal budgets of parameters are not equal bytes.** f̂ goes up with the update: the clients of FedFIbOS "
        f"sent {ours.mean / theirs.mean:.1f} times what those of FIARSE sent ({ours.mean / 1e9:.2f} and "
        f"{theirs.mean / 1e9:.2f} GB here), and those of Algorithm 1, whose f̂ is of all parameters, "
        f"{letter.mean / theirs.mean:.1f} times; its small clients also run a full-size backward pass."
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
    by_split = "; ".join(
        f"{study.splits[split]}: {points(_within(study, split, 'algorithm1', 'fedfibos', ADJUSTED))}"
        for split in study.splits
    )
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
            f"points ({by_split}), and in every cell the shared score with the frequencies is above the per-client "
            "scores without. (Submodels that have learnt their client's frequencies count them twice then, which costs "
            "where classes are present in unequal shares.) "
            "So one setting does have both: one shared score, its submodels good for all classes, and every client's "
            "class frequencies at prediction.",
        ),
        table(rows),
    ]


def _within(study: Study, split: str, one: str, other: str, keys: Sequence[str]) -> Spread | None:
    """The difference over the mixes of one split."""
    cells = {cell: methods for cell, methods in study.cells.items() if cell[0] == split}
    return replace(study, cells=cells).pooled(one, other, *keys)


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
