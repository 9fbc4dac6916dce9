"""CIFAR-10: what was run, the tables, the mechanism."""

from __future__ import annotations

from findings_page.conclusions import conclusions
from findings_page.paper import paper_says
from findings_page.records import MAIN, Study
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
)


def opening(study: Study) -> list[str]:
    """What was run, and with which learning rates."""
    first = next(iter(study.cells[MAIN].values()))[0]
    runs = [record for methods in study.cells.values() for group in methods.values() for record in group]
    commits = sorted({short(record.environment["commit"]) for record in runs})
    made, local, federation = first.environment, first.experiment.local, first.experiment.federation
    return [
        "## The study",
        f"CIFAR-10, {len(runs)} runs beside the ceilings: {federation.clients} clients, {federation.cohort} a round, "
        f"{federation.rounds} rounds of {local.steps} steps of {local.batch_size} images, SGD with momentum "
        f"{local.momentum:g}, cosine schedule, {local.precision}; the LeNet of McMahan et al. at half the width "
        "(277,610 parameters; no normalisation, so the sliced methods run without the scaler). Capacities 1, 1/2, 1/4, "
        "1/8, 1/16. Submodels of one client a capacity are evaluated where they are personal. "
        f"{made['cpu']}, one core a run, torch {made['torch']}, commits {', '.join(commits)} "
        "(dirty: files other than the run's own records had changed). It is not the "
        "paper's scale (ResNet-18, 800 rounds of longer training): orders and mechanisms can be compared, not figures.",
        "Learning rates were chosen on a tenth of the training data that no client got (two classes a client, "
        "non-uniform, 240 rounds, seed 0). Accuracy there over the submodels, the chosen one bold; some of the best "
        "are at the edge of what was tried. Methods without a line have that of the nearest one: FedFIbOS without the "
        "prior, by layer, by participants, blended budgets and random masks .05 as FedFIbOS, a blend of scores .05 as "
        "`ssp`, magnitude .025 as FIARSE.",
        rates(study),
    ]


def short(commit: str) -> str:
    """A commit's first digits, and whether the files had changed."""
    digits, dash, dirty = str(commit).partition("-")
    return f"{digits[:7]}{dash}{dirty}"


def tables(study: Study) -> list[str]:
    """Accuracies of every cell, and paired differences."""
    parts = []
    for cell in study.in_order():
        parts += [f"## {study.data}, {study.where(cell)} capacities", accuracies(study, cell)]
        parts.append(paper_says(study, cell))
    parts += [
        "## Differences",
        "Percentage points, paired by seed: same partition, fleet and cohorts. “Ahead” and “behind” are said above "
        "where a paired t-test says so at the 95 % level, one comparison at a time; so does bold in the last lines. "
        "“Mean over the cells” is taken seed by seed before the test: the cells of a seed share initial values and "
        "cohorts.",
    ]
    for one, other, title in (
        ("fedfibos", "fiarse", "FedFIbOS (shared score, magnitude prior) minus FIARSE"),
        ("fedfibos-none", "fiarse", "FedFIbOS (default: shared score, no prior) minus FIARSE"),
        ("fedfibos", "magnitude", "FedFIbOS (magnitude prior) minus magnitude in the same round"),
        ("algorithm1", "fiarse", "Algorithm 1 minus FIARSE"),
        ("algorithm1", "fedfibos", "Algorithm 1 minus FedFIbOS with a shared score and the same prior"),
        ("ssp", "fedfibos-none", "`ssp` minus FedFIbOS, both without the prior"),
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
        "The same in the split of the paper's figures (Dirichlet 0.3, non-uniform):",
        similarity(study, ("dirichlet", "non-uniform")),
    ]
    for name, diagnosis in study.diagnoses.items():
        parts += [
            f"## The surrogate and the error it stands for: the model of {TITLES[name]}",
            f"`fedfibos diagnose` at the last round, seed 0, {len(diagnosis['clients'])} clients. ε is what selection "
            "minimises (the Fisher-weighted weights that are left out); e the squared difference of the gradients with "
            "and without the mask, on the held coordinates or on all; δ² = e / ‖x̃‖²; mean ± sd over clients. “fisher” "
            "is the Fisher information there, example by example; the method's own masks come from its score. The last "
            "columns: how often two of all these selections are in the same order by ε and by e (Assumption 5; chance "
            "is .5).",
            errors(diagnosis),
        ]
    return parts


def section(study: Study) -> list[str]:
    """All of it."""
    return [*opening(study), *conclusions(study), *tables(study), *mechanism(study), *precision(study)]
