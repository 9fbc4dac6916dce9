"""Claim 3: as masks, saliency with nested steps is the best that we have."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.claims.lead import lead
from evidence.compared import PLACES, between, side_by_side
from evidence.records import DIRICHLET, DIRICHLET_UNIFORM, MAIN, SUBMODELS, Cell, Study
from evidence.words import claim, verdict
from fedfibos.common.statistics import Spread

TWO_CLASSES = ("two-classes", "non-uniform")
"""The cell of the digits."""


def section(study: Study, hundred: Study, digits: Study) -> list[str]:
    """Saliency with nested steps, and what the training alone gives."""
    best, alike_trained = "saliency-nested-rare-momentum", "fiarse-nested-momentum"
    ours = ("saliency-nested", "saliency-nested-rare", best)
    rows = []
    for cell in study.in_order():
        against_fiarse = [(name, "fiarse") for name in (*ours, "fiarse-nested")]
        rows += between(study, cell, *against_fiarse, ("saliency-nested", "fiarse-nested"), (best, alike_trained))
    for cell in hundred.in_order():
        rows += between(hundred, cell, (best, "fiarse"), (best, alike_trained))
    rows += between(digits, TWO_CLASSES, ("saliency-nested", "fiarse"), ("saliency-nested", "fiarse-nested"))
    lifted = [study.difference(DIRICHLET, best, "fiarse", *keys) for keys in PLACES.values()]
    alike = [
        study.difference(cell, best, alike_trained, *keys)
        for cell in (DIRICHLET, DIRICHLET_UNIFORM)
        for keys in PLACES.values()
    ]
    classes = [
        hundred.difference(cell, best, "fiarse", *keys) for cell in (MAIN, DIRICHLET) for keys in PLACES.values()
    ]
    hundred_alike = [
        hundred.difference(cell, best, alike_trained, *keys) for cell in (MAIN, DIRICHLET) for keys in PLACES.values()
    ]
    others = [
        hundred.difference(cell, best, "fiarse", *SUBMODELS)
        for cell in hundred.in_order()
        if cell not in (MAIN, DIRICHLET)
    ]
    settled = [
        study.difference(cell, best, "fiarse", *keys) for cell in (MAIN, DIRICHLET_UNIFORM) for keys in PLACES.values()
    ]
    training = study.difference(MAIN, "fiarse-nested", "fiarse", *SUBMODELS)
    selection = study.difference(MAIN, "saliency-nested", "fiarse-nested", *SUBMODELS)
    return [
        "## 3. As masks, saliency with nested steps is the best that we have",
        "*Saliency* is Fisher information times the squared parameter. "
        + lead(study, "saliency-nested", "With two classes a client, saliency with nested steps")
        + " "
        + lead(study, "saliency-nested", "Under Dirichlet splits the method", DIRICHLET),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.02 for found in lifted),
            "With momentum at the server, and estimates in every tenth round only, the lead there is more than two "
            "points everywhere.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.03 for found in settled),
            "It is ahead everywhere with two classes a client too, and under Dirichlet splits with uniform capacities.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.n >= 5 for found in alike),
            "Under Dirichlet splits this is not the training alone. FIARSE with the same nested steps and momentum "
            "stays behind in the full model, over the submodels and with the smallest, with non-uniform and with "
            "uniform capacities.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.03 for found in classes),
            "On CIFAR-100, at the rates of CIFAR-10, it is ahead of FIARSE under two splits with three seeds each, by "
            "more than three points in the full model, over the submodels and with the smallest.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.n >= 3 for found in hundred_alike),
            "It is ahead of FIARSE with the same training there too, in all three places.",
        ),
        claim(
            len(others) == 4 and all(found is not None and found.n == 1 and found.mean > 0.02 for found in others),
            "The other four cells of CIFAR-100 have one seed each. In all four its mean over the submodels is more "
            "than two points above FIARSE's.",
        ),
        "And with two classes a client? FIARSE with nested steps has the same training. Over the submodels, "
        f"the gain of nested steps for FIARSE is {_gain(training)}. The gain of saliency over FIARSE with nested steps "
        f"is {_gain(selection)}.",
        side_by_side(rows),
        "With *rare estimates* clients send their Fisher estimates only in every tenth round. The upload then falls "
        "from twice FIARSE's to little more than FIARSE's ([GB up](nested.md)). These runs show no loss of accuracy "
        "from it.",
        claim(
            all(_mean(digits, TWO_CLASSES, keys) > _mean(study, MAIN, keys) for keys in PLACES.values()),
            "On the small [digits](evidence/digits.md) the lead is larger. It shrinks as clients become more alike.",
        ),
        "*Limits.* As in claim 2.",
    ]


def _mean(study: Study, cell: Cell, keys: Sequence[str]) -> float:
    """Saliency with nested steps minus FIARSE."""
    found = study.difference(cell, "saliency-nested", "fiarse", *keys)
    assert found is not None
    return found.mean


def _gain(difference: Spread | None) -> str:
    """A verdict on a gain, in a sentence."""
    words = {"ahead": "clear", "behind": "a loss", "equal within 1": "within one point"}
    return words.get(verdict(difference), "not settled")
