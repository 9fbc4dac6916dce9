"""What the paper prints for a cell of the study."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.records import Cell, Study
from fedfibos.report.paper import paper_figures


def in_the_paper(study: Study, cell: Cell) -> Mapping[str, float]:
    """The paper's global accuracies of FedFIbOS and FIARSE there, and their ``gap``, in %; empty where it has none."""
    data = next(iter(study.cells[cell].values()))[0].experiment.data
    dealt = data.partition.classes_per_client if data.partition.scheme == "pathological" else data.partition.alpha
    for printed in paper_figures()["tables"]:
        for row in printed["rows"]:
            capacities, partition = row.get("capacities") or printed["capacities"], row["partition"]
            wanted = partition.get("classes_per_client", partition.get("alpha"))
            if (row["data"], wanted, capacities) == (data.name, dealt, cell[1]):
                ours, theirs = row["fedfibos"][1], row["fiarse"][1]
                return {"fedfibos": ours, "fiarse": theirs, "gap": ours - theirs}
    return {}


def paper_says(study: Study, cell: Cell) -> str:
    """The same as a sentence."""
    printed = in_the_paper(study, cell)
    if not printed:
        return "The paper has no such cell."
    return f"The paper's global accuracies here: FedFIbOS {printed['fedfibos']:.1f}, FIARSE {printed['fiarse']:.1f}."
