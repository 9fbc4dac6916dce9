"""Claim 1: on images, plain Fisher masks are no better than magnitude."""

from __future__ import annotations

from evidence.compared import PLACES, Comparison, comparisons
from evidence.studies import Studies
from evidence.words import claim, verdict


def section(studies: Studies) -> list[str]:
    """The paper's claim, on images."""
    images, norm, hundred = studies.images, studies.norm, studies.hundred
    full, submodels, smallest = (images.pooled("fedfibos", "fiarse", *keys) for keys in PLACES.values())
    assert full is not None
    assert submodels is not None
    rows = [
        Comparison("CIFAR-10, mean over six cells", images, "fedfibos", "fiarse"),
        *(Comparison(f"CIFAR-10, {images.where(cell)}", images, "fedfibos", "fiarse", cell)
          for cell in images.in_order()),
        *(Comparison(f"with group normalisation, {norm.where(cell)}", norm, "fedfibos", "fiarse", cell)
          for cell in norm.in_order()),
        *(Comparison(f"CIFAR-100, {hundred.where(cell)}", hundred, "fedfibos", "fiarse", cell)
          for cell in hundred.in_order()),
    ]  # fmt: skip
    return [
        "## 1. On images, plain Fisher masks are no better than magnitude",
        claim(
            verdict(full) == "ahead" and verdict(smallest) == "behind" and abs(submodels.mean) < 0.02,
            "Here FedFIbOS keeps one Fisher score that all clients share. It is ahead of FIARSE in the full model, and "
            "behind it with the smallest submodels. Over the submodels together there is no clear difference. The "
            "paper reports a lead of many points.",
        ),
        comparisons("shared Fisher score minus FIARSE", rows, judged="mean of the submodels"),
        "*Limits.* The networks are small and train for fewer steps than the paper's. FedFIbOS sends its estimates "
        "beside its updates, so it uploads twice the bytes. [CIFAR-10](evidence/cifar10.md) and "
        "[CIFAR-100](evidence/cifar100.md) have the evidence.",
    ]
