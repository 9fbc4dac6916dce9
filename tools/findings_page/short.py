"""What the findings come to, in a few lines: the first thing that a reader sees."""

from __future__ import annotations

from collections.abc import Sequence

from fedfibos.common.statistics import Spread
from findings_page.conclusions import over_clients
from findings_page.records import FULL, SMALLEST, SUBMODELS, Cell, Study
from findings_page.tables import TITLES
from findings_page.words import claim, percent, verdict


def in_short(images: Study, norm: Study, hundred: Study, text: Study, tuned: Study) -> str:
    """The answer, data set by data set."""
    return "\n".join(
        [
            claim(
                not any(gap.clear(1) or gap.clear(-1) for gap in at_own_rates(tuned).values()),
                "**In short: not by ten points on images; on text well ahead at one learning rate for all, and told "
                "apart from no variant of FIARSE where each has a rate of its own.** A shared Fisher score against "
                "FIARSE:",
            ),
            "",
            on_cifar10(images),
            f"- With group normalisation: {_cells(norm)}.",
            f"- CIFAR-100: {_cells(hundred)}.",
            "- Per-client scores, the paper's Algorithm 1, buy knowledge of a client's classes, which is free: a "
            "client can add its class frequencies to the logits of any model.",
            on_text(text, tuned),
        ]
    )


def on_cifar10(study: Study) -> str:
    """Pooled over all cells."""
    full, tiny, sub = (study.pooled("fedfibos", "fiarse", *keys) for keys in (FULL, SMALLEST, SUBMODELS))
    clients = over_clients(study, "fedfibos", "fiarse")
    assert full is not None
    assert tiny is not None
    assert sub is not None
    return claim(
        abs(full.mean) < 0.03 and clients.clear(-1) and tiny.clear(-1),
        f"- CIFAR-10, all splits and capacity mixes: {verdict(full)} in the full model, {verdict(tiny)} with the "
        f"smallest capacity, {verdict(sub)} over the submodels where every capacity counts the same, "
        f"{verdict(clients)} where every client does. It sends twice the bytes.",
    )


def _cells(study: Study) -> str:
    """Full model, submodels and smallest of every cell that has both methods."""
    said = []
    for cell in study.in_order():
        full, sub, tiny = (_over(study, cell, "fedfibos", "fiarse", keys) for keys in (FULL, SUBMODELS, SMALLEST))
        said.append(
            f"{verdict(full)} in the full model, {verdict(sub)} over the submodels, {verdict(tiny)} with the smallest "
            f"({study.splits[cell[0]]})"
        )
    return "; ".join(said)


def on_text(study: Study, tuned: Study) -> str:
    """Both capacity mixes of AG News, against FIARSE and its best variant; and each at a rate of its own."""
    uniform, other = ("dirichlet", "uniform"), ("dirichlet", "non-uniform")
    means = {
        name: value.mean
        for name in study.cells[uniform]
        if name.startswith("fiarse") and (value := study.spread(uniform, name, *SUBMODELS)) is not None
    }
    best = max(means, key=lambda name: means[name])
    plain, ahead, again = (
        _over(study, uniform, "fedfibos-none", "fiarse", SUBMODELS),
        _over(study, uniform, "fedfibos-none", best, SUBMODELS),
        _over(study, other, "fedfibos-none", best, SUBMODELS),
    )
    own_rates = "; ".join(f"{verdict(gap)} against {TITLES[name]}" for name, gap in at_own_rates(tuned).items())
    return claim(
        best != "fiarse" and plain.clear(1) and ahead.clear(1) and again.clear(1),
        "- Text (62.8 % of the training set of AG News): without magnitudes in its beginning it has "
        f"{percent(study.spread(uniform, 'fedfibos-none', *SUBMODELS))} over the submodels: {verdict(plain)} of "
        "FIARSE over all parameters, whose small submodels lose the head at the study's learning rate, "
        f"{verdict(ahead)} of its best variant ({TITLES[best]}; {ahead.n} seeds, two of them added after three had "
        f"not told the two apart), and in the other capacity mix {verdict(again)} ({again.n} seeds). **With each at "
        f"the rate that one seed's validation texts prefer: {own_rates}.** In the full model no difference is shown.",
    )


def at_own_rates(tuned: Study) -> dict[str, Spread]:
    """The default minus each of FIARSE's variants over the submodels, on text, each at the rate chosen for it."""
    cell = ("dirichlet", "uniform")
    names = [name for name in TITLES if name in tuned.cells[cell] and name.startswith("fiarse")]
    found = {name: tuned.difference(cell, "fedfibos-none", name, *SUBMODELS) for name in names}
    return {name: gap for name, gap in found.items() if gap is not None}


def _over(study: Study, cell: Cell, one: str, other: str, keys: Sequence[str]) -> Spread:
    found = study.difference(cell, one, other, *keys)
    assert found is not None
    return found
