"""The part of docs/explanation/protocols.md that runs a published experiment again."""

from __future__ import annotations

from pathlib import Path

from evidence.records import FULL, entry
from evidence.tables import table
from evidence.words import claim
from fedfibos.report.records import read_record
from fedfibos.runs.files import FINAL
from fedfibos.runs.stored import stored_below

IID = {"e": 98.46, "d-e": 99.12}
"""Levels -> accuracy in % of the full model, as github.com/adap/flower prints it in baselines/heterofl/README.md."""

BEST = ("global_accuracy", "full", "best")


def section(as_published: Path) -> list[str]:
    """HeteroFL on MNIST, beside what Flower's baseline printed."""
    rows = [["level of the clients", "published", "here, last evaluation", "here, best", "seeds"]]
    gaps = []
    for found in stored_below(as_published / "heterofl-mnist", FINAL):
        split, level = found.parts[-4:-2]
        final = read_record(found.parent).final
        last, best = entry(final, FULL), entry(final, BEST)
        if split == "iid" and last is not None and best is not None:
            gaps.append(100 * last - IID[level])
            rows.append([level, f"{IID[level]:.2f}", f"{100 * last:.2f}", f"{100 * best:.2f}", "1"])
    return [
        "## A published number, run again",
        "HeteroFL's cheapest published runs are on MNIST, with examples dealt at random. [Flower's "
        "baseline](https://github.com/adap/flower/tree/main/baselines/heterofl) ran them again with the authors' "
        "settings, and published what it got. `experiments/as-published/heterofl-mnist.toml` has the same settings: "
        "100 clients, 200 rounds of 10, each with five epochs in batches of 10. At level d-e the full model has an "
        "eighth of the width of the authors' largest. In every round half of the clients have it, and the others half "
        "its width. Accuracy of the full model on the test set in %:",
        table(rows),
        claim(
            bool(gaps) and max(map(abs, gaps)) < 0.3,
            "The accuracies agree within three tenths of a point. MNIST is easy, so this shows that our HeteroFL has "
            "no gross fault. It says nothing about harder data.",
        ),
    ]
