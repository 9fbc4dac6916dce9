"""Claim 2: channels chosen by Fisher information, with nested steps, beat magnitude."""

from __future__ import annotations

from evidence.claims.lead import lead
from evidence.compared import PLACES, between, side_by_side
from evidence.records import CELLS, DIRICHLET, MAIN, SUBMODELS, Study
from evidence.words import claim, verdict


def section(study: Study) -> list[str]:
    """Channels with nested steps."""
    pairs = (
        ("channels-nested", "fiarse"),
        ("channels-nested-tuned", "fiarse"),
        ("channels-nested-tuned", "fiarse-nested"),
        ("channels-nested-momentum", "fiarse"),
        ("channels-nested-momentum", "fiarse-nested-momentum"),
        ("channels-nested", "heterofl"),
    )
    rows = [row for cell in CELLS for row in between(study, cell, *pairs)]
    ours, theirs = (study.difference(MAIN, "channels-nested", other, *SUBMODELS) for other in ("fiarse", "heterofl"))
    alone = study.difference(MAIN, "channels", "fiarse", *SUBMODELS)
    lifted = [study.difference(MAIN, "channels-nested-momentum", "fiarse", *keys) for keys in PLACES.values()]
    apart = [study.difference(DIRICHLET, "channels-nested-momentum", "fiarse", *keys) for keys in PLACES.values()]
    both = [
        study.difference(MAIN, "channels-nested-momentum", "fiarse-nested-momentum", *keys) for keys in PLACES.values()
    ]
    return [
        "## 2. Channels chosen by Fisher information, with nested steps, beat magnitude",
        claim(
            ours is not None and ours.n >= 5 and verdict(ours) == "ahead" and verdict(theirs) == "ahead",
            "A submodel of chosen channels is a smaller network. It saves memory and time as well as bytes. In a "
            "*nested step* a client trains a smaller submodel that lies inside its own.",
        ),
        lead(study, "channels-nested-tuned", "With two classes a client and a rate tuned for nested steps, the method")
        + " It is far ahead of HeteroFL's slices.",
        claim(
            alone is not None and verdict(alone) == "behind",
            "Without nested steps the same channels are behind FIARSE over the submodels.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.05 for found in lifted),
            "*Momentum at the server* adds up the updates of the rounds, at no cost for the clients. With it the lead "
            "over FIARSE is more than five points everywhere.",
        ),
        claim(
            [verdict(found) for found in apart] == ["ahead", "ahead", "not settled"],
            "Under Dirichlet splits the lead is smaller. It is clear for the full model and over the submodels.",
        ),
        claim(
            [verdict(found) for found in both] == ["ahead", "ahead", "not settled"],
            "Is it the training or the selection? FIARSE gains from the same training, and most with the smallest "
            "submodels. There the two are then alike. In the full model and over the submodels the channels stay "
            "ahead.",
        ),
        side_by_side(rows),
        "*Limits.* There is one small network. On [CIFAR-100](evidence/cifar100.md) one seed shows hardly a lead. "
        "[A pretrained encoder](pretrained.md) and [a deep "
        "network](evidence/cifar10.md#a-deep-network-with-batch-normalisation) give another order. The rate was "
        "tuned on one seed with two classes a client. Under Dirichlet splits it is too low without momentum at the "
        "server, and no lead over FIARSE is shown there. FIARSE had the better full model even where most devices "
        "could not afford the arithmetic of a mask ([At equal devices](nested.md#at-equal-devices)).",
        "[All methods of this study](nested.md) are on a page of their own. [Submodels that fit the "
        "device](devices.md) says what a device saves.",
    ]
