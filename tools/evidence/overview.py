"""docs/findings.svg: what the figure of the findings compares, group by group."""

from __future__ import annotations

from evidence.compared import Comparison
from evidence.records import DIRICHLET, DIRICHLET_UNIFORM, MAIN, Cell, Study
from evidence.studies import TEXT, Studies
from evidence.tables import TITLES


def groups(studies: Studies) -> list[tuple[str, list[Comparison]]]:
    """What the figure draws."""
    images, nested = studies.images, studies.nested
    shared = "shared Fisher score"
    beyond = (
        "saliency-nested",
        "saliency-nested-rare-momentum",
        "channels-nested",
        "channels-nested-momentum",
        "fiarse-nested",
        "fiarse-nested-momentum",
    )

    def lines(cell: Cell, study: Study = nested) -> list[Comparison]:
        known = study.cells.get(cell, {})
        return [Comparison(TITLES[name], study, name, "fiarse", cell) for name in beyond if name in known]

    return [
        ("CIFAR-10, two classes a client", [
            Comparison(shared, images, "fedfibos", "fiarse", MAIN),
            Comparison("Algorithm 1", images, "algorithm1", "fiarse", MAIN),
            *lines(MAIN),
        ]),
        ("CIFAR-10, Dirichlet 0.3", [
            Comparison(shared, images, "fedfibos", "fiarse", DIRICHLET),
            *lines(DIRICHLET),
        ]),
        ("The same with uniform capacities", [
            Comparison(shared, images, "fedfibos", "fiarse", DIRICHLET_UNIFORM),
            *lines(DIRICHLET_UNIFORM),
        ]),
        ("Both with group normalisation", [
            Comparison(f"{shared}, two classes", studies.norm, "fedfibos", "fiarse", MAIN),
            Comparison(f"{shared}, Dirichlet 0.3", studies.norm, "fedfibos", "fiarse", DIRICHLET),
        ]),
        ("CIFAR-100, twenty classes a client", [
            Comparison(shared, studies.hundred, "fedfibos", "fiarse", MAIN),
            *lines(MAIN, studies.hundred),
        ]),
        ("CIFAR-100, Dirichlet 0.3", [
            Comparison(shared, studies.hundred, "fedfibos", "fiarse", DIRICHLET),
            *lines(DIRICHLET, studies.hundred),
        ]),
        ("AG News, each at a rate of its own", [
            Comparison("default, FIARSE by layer", studies.tuned, "fedfibos-none", "fiarse-layer", TEXT),
            Comparison("default, FIARSE with its head", studies.tuned, "fedfibos-none", "fiarse-head", TEXT),
        ]),
    ]  # fmt: skip
