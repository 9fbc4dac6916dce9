"""The paper's numbers, and the runs that may stand beside them."""

from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, FEW, content, seeds, write_run

from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.sections import Data
from fedfibos.data.partition import Partition
from fedfibos.report import build_report, html
from fedfibos.report.paper import comparisons, paper_figures


def test_every_cell_of_the_paper_and_only_matching_runs_beside_it(runs):
    letter = replace(EXPERIMENT, method=MethodChoice("fedfibos", "algorithm1"))
    write_run(runs / "letter", letter)
    other = replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, capacities={1.0: 0.5, 0.5: 0.5}))
    write_run(runs / "other", other, (0.9, 0.9))
    (first,), without = comparisons(content(runs))
    assert len(first.rows) == 6
    assert len(without) == 13
    assert without[0] == "CIFAR-10 Low: 5 classes a client, non-uniform"
    assert "CIFAR-10 High: 2 classes a client, non-uniform" not in without
    rows = [tuple(cell.text for cell in entries) for entries in first.rows]
    high = [entries[1:] for entries in rows if entries[0] == "CIFAR-10 High: 2 classes a client, non-uniform"]
    where = "resnet8 (group norm), 100 clients, 10 a round, 4 rounds"
    assert high == [
        ("HeteroFL", "84.05", "no run", "34.44", "no run", "no run", ""),
        ("FedRolex", "83.92", "no run", "39.01", "no run", "no run", ""),
        ("FedBRB (our interpretation)", "89.90", "no run", "54.48", "no run", "no run", ""),
        ("FIARSE", "91.19", "60.0 ± 0.0", "59.85", "30.0 ± 0.0", "40.0 ± 0.0", f"2 seeds; {where}"),
        ("FedFIbOS", "92.80", "75.0 ± 7.1", "92.34", "45.0 ± 7.1", "55.0 ± 7.1", f"2 seeds; {where}"),
        (
            "FedFIbOS “algorithm1”",
            "92.80",
            "70.0 (n = 1)",
            "92.34",
            "40.0 (n = 1)",
            "50.0 (n = 1)",
            f"1 seed; {where}",
        ),
    ]


def test_the_paper_s_numbers():
    methods = ("heterofl", "fedrolex", "fedbrb", "fiarse", "fedfibos")
    cells = [row[m] for table in paper_figures()["tables"] for row in table["rows"] for m in methods if m in row]
    assert len(cells) == 52
    assert all(len(cell) == 2 for cell in cells)
    assert [round(sum(cell[i] for cell in cells), 2) for i in (0, 1)] == [3693.05, 3024.24]  # of the printed numbers


def test_another_problem_than_the_paper_s_is_not_set_beside_it(tmp_path):
    digits = replace(EXPERIMENT, data=Data("digits", FEW), model=ModelChoice("mlp"))
    write_run(tmp_path / "run", digits)
    report = build_report([tmp_path])
    assert report.comparisons == ()
    assert "The paper's tables beside ours" not in html(report)
    (beside, *_) = build_report([_cifar(tmp_path)]).comparisons
    assert beside.slug == "paper-1-classes-non-uniform"


def _cifar(folder):
    write_run(folder / "cifar" / "run", EXPERIMENT)
    return folder / "cifar"


@pytest.mark.slow_where("partition2")
@pytest.mark.parametrize(
    ("partition", "beside"),
    [(Partition("dirichlet", alpha=0.3), True), (Partition("dirichlet", alpha=0.5), False), (FEW, False)],
)
def test_the_paper_s_figures_are_set_beside_its_own_split_alone(tmp_path, partition, beside):
    seeds(tmp_path, replace(EXPERIMENT, data=Data("cifar10", partition)), 0.5)
    drawn = [figure.wide.decode() for figure in build_report([tmp_path]).figures()]
    assert any("CV_F, paper" in svg for svg in drawn) == beside
    assert any("paper, γ = 0.5" in svg for svg in drawn) == beside
