"""Which variant stands for a method in a comparison, and what a difference is."""

from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, content, seeds, table, write_run

from fedfibos.common.statistics import Spread
from fedfibos.config.choices import MethodChoice
from fedfibos.report import build_report, html
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.rival import rival
from fedfibos.report.sorting import sort_records
from fedfibos.report.table import Cell
from fedfibos.runs.reading import RecordError


def test_differences_are_taken_seed_by_seed(tmp_path):
    seeds(tmp_path / "fedfibos", EXPERIMENT, 0.50, 0.60, 0.70)
    seeds(tmp_path / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.48, 0.59, 0.67)
    seeds(tmp_path / "heterofl", replace(EXPERIMENT, method=MethodChoice("heterofl")), 0.10, 0.90)
    seeds(tmp_path / "fedrolex", replace(EXPERIMENT, method=MethodChoice("fedrolex")), 0.25, 0.34, 0.47)
    made = table(build_report([tmp_path]), "differences")
    assert made.columns[:4] == ("minus FedFIbOS", "seeds", "submodels", "full model")
    heterofl, fedrolex, fiarse = made.rows
    # Of −2, −1, −3: 2 ± 4.303 · 1 / √3, Student's t of two degrees of freedom.
    assert [cell.text for cell in fiarse[:3]] == ["FIARSE", "3", "−2.0 [−4.5, +0.5]"]
    assert [cell.text for cell in heterofl[:3]] == ["HeteroFL", "2", "−5.0 [−449.7, +439.7]"]
    assert [line[2].bold for line in made.rows] == [False, True, False]
    assert fedrolex[2].text == "−24.7 [−28.5, −20.9]"
    against = table(build_report([tmp_path], "fiarse"), "differences")
    assert [line[0].text for line in against.rows] == ["HeteroFL", "FedRolex", "FedFIbOS"]
    assert [cell.text for cell in against.rows[2][1:3]] == ["3", "+2.0 [−0.5, +4.5]"]


def test_a_difference_is_clear_by_a_paired_t_test():
    below, above = Spread(0.02, 0.02 * 3**0.5 / 4.31, 3), Spread(0.02, 0.02 * 3**0.5 / 4.30, 3)
    assert below.clear(1)
    assert not below.clear(-1)
    assert not above.clear(1)
    assert Spread(-0.02, 0.0, 2).clear(-1)
    assert not Spread(0.5, None, 1).clear(1)
    assert (below.signed(100), Spread(-0.012, 0.001, 3).signed(100)) == ("+2.0 ± 0.8", "−1.2 ± 0.1")


def test_a_single_seed_and_no_common_seed(runs, tmp_path):
    seeds(tmp_path / "one" / "fedfibos", EXPERIMENT, 0.5)
    seeds(tmp_path / "one" / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4)
    made = table(build_report([tmp_path / "one"]), "differences")
    assert made.rows[0][2] == Cell("−10.0 (n = 1)")
    assert "tells nothing" in made.note
    write_run(tmp_path / "other" / "fedfibos", replace(EXPERIMENT, seed=7))
    write_run(tmp_path / "other" / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")))
    report = build_report([tmp_path / "other"])
    assert not any(made.slug.startswith("differences") for made in report.tables())
    assert html(report)
    with pytest.raises(RecordError, match="no method of these runs is 'mine': there are fiarse, fedfibos"):
        build_report([runs], "mine")


def test_differences_are_from_the_fedfibos_nearest_to_its_defaults(tmp_path):
    def fedfibos(name, preset=None, **settings):
        seeds(tmp_path / name, replace(EXPERIMENT, method=MethodChoice("fedfibos", preset, settings)), 0.5, 0.6)

    fedfibos("letter", "algorithm1")
    fedfibos("started", prior="magnitude")
    fedfibos("slower", server_lr=0.5)
    first = content(tmp_path).problems[0].groups
    assert "algorithm1" in first[0].label  # the first row is not the one
    base = rival(content(tmp_path).problems[0], None)
    assert base.experiment.method.preset is None  # of the two that are one setting away the first row
    assert base is not None
    fedfibos("plain")
    assert rival(content(tmp_path).problems[0], None).label == "FedFIbOS"


def test_against_takes_the_variant_that_a_sweep_printed(tmp_path):
    for prior in ("magnitude", "none"):
        for rate in (0.1, 0.2):
            local = replace(EXPERIMENT.local, lr=rate)
            method = MethodChoice("fedfibos", None, {"prior": prior})
            seeds(
                tmp_path / "high" / f"prior-{prior}" / str(rate), replace(EXPERIMENT, method=method, local=local), 0.5
            )
    (problem,) = content(tmp_path).problems
    label = "FedFIbOS, prior = magnitude, lr = 0.2"
    assert rival(problem, "prior-magnitude/0.2").label == label
    for common in ("high", "0.1", "prior-magnitude", "seed-0"):  # of two or of all
        assert rival(problem, common) is None
    with pytest.raises(RecordError, match=r"no method of these runs is 'mine': there are .*, prior-magnitude/0\.2"):
        build_report([tmp_path], "mine")
    one, other = (tmp_path / "high" / "prior-none" / rate / "seed-0" for rate in ("0.1", "0.2"))
    (problem,) = sort_records([read_record(path, name) for path, name in find_runs([one, other]).items()]).problems
    assert rival(problem, "0.2").experiment.local.lr == 0.2
