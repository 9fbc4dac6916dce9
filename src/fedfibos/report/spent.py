"""What a study's private runs have spent, and what they keep of accuracy for it."""

from __future__ import annotations

from fedfibos.report.groups import Problem
from fedfibos.report.table import Table, row
from fedfibos.report.tables import NONE

SAMPLING = {"fixed": "secret, of fixed size", "poisson": "secret, each by itself", "known": "no secret"}


def spent(problem: Problem, slug: str) -> tuple[Table, ...]:
    """A table of epsilon, delta and noise; none where no run of the problem is private."""
    rows = []
    for group in problem.groups:
        epsilon, settings = group.over_seeds("epsilon"), group.experiment.privacy
        if epsilon is None or settings is None:
            continue
        scores = NONE if settings.statistic_noise is None else f"{settings.statistic_noise:g}"
        rows.append(
            row(
                group.label,
                epsilon.text(digits=2),
                f"{settings.delta:g}",
                f"{settings.noise:g}",
                scores,
                SAMPLING[settings.sampling],
            )
        )
    if not rows:
        return ()
    note = (
        "Differential privacy of clients: epsilon of the parameters and the shared score after the last round. Smaller "
        "is more private. A run that is not in this table gives no such bound. Noise is in units of a client's largest "
        "possible contribution. Accuracies are not covered: they are measured on the data of the study."
    )
    columns = ("method", "epsilon", "delta", "noise", "noise of scores", "cohort")
    title = f"Privacy spent: {problem.label}"
    return (Table(f"privacy-{slug}", title, columns, tuple(rows), note, words=1, trailing_words=1),)
