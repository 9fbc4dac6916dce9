"""Tables of a report have the records' numbers."""

import json
from dataclasses import replace

from made_runs import EXPERIMENT, table, write_run

from fedfibos.config.choices import MethodChoice
from fedfibos.report import build_report
from fedfibos.report.records import read_record
from fedfibos.report.tables import bytes_to_accuracy


def test_results_are_the_records_numbers_with_the_best_marked(runs):
    results = table(build_report([runs]), "results")
    assert results.columns == ("method", "seeds", "global, full", "global, submodels", "global, γ = 0.0625", "local")
    texts = {entries[0].text: [cell.text for cell in entries[1:]] for entries in results.rows}
    assert texts["FIARSE"] == ["2", "40.0 ± 0.0", "30.0 ± 0.0", "30.0 ± 0.0", "60.0 ± 0.0"]
    assert texts["FedFIbOS"] == ["2", "55.0 ± 7.1", "45.0 ± 7.1", "45.0 ± 7.1", "75.0 ± 7.1"]
    assert [cell.bold for cell in results.rows[1]] == [False, False, True, True, True, True]


def test_the_summary_that_is_asked_for_is_shown_everywhere(runs):
    report = build_report([runs], summary="last20")
    results = table(report, "results")
    assert results.title.startswith("Accuracy in %, mean of the last 20 evaluations: ")
    assert "Mean over the 2 evaluations from round 2 to 4." in results.note
    assert [cell.text for cell in results.rows[0][1:4]] == ["2", "35.0 ± 0.0", "25.0 ± 0.0"]  # of 30 and 40, 20 and 30
    assert table(report, "differences").rows[0][2].text == "−7.5 [−39.3, +24.3]"
    assert table(report, "capacities").rows[0][2].text == "25.0 ± 0.0"
    assert table(report, "paper").rows[3][3].text == "55.0 ± 0.0"


def test_what_counts_every_class_alike_is_shown_where_it_is_on_record(runs):
    assert "largest class" not in table(build_report([runs]), "results").note
    path = runs / "fiarse" / "seed-0" / "final.json"
    curve = {"last": 0.25, "last20": 0.2, "best": 0.3}
    both = {"full": curve, "submodels": {"mean": curve}}
    final = json.loads(path.read_text()) | {"balanced_accuracy": both, "macro_f1": both, "majority_share": 0.183}
    path.write_text(json.dumps(final))
    report = build_report([runs])
    assert "Always answering the largest class reaches 18.3 %." in table(report, "results").note
    rows = [tuple(cell.text for cell in entries[:3]) for entries in table(report, "statistics").rows]
    assert rows[3:7] == [
        ("FIARSE", "balanced, full", "25.0 (n = 1)"),
        ("FIARSE", "balanced, submodels", "25.0 (n = 1)"),
        ("FIARSE", "macro F1, full", "25.0 (n = 1)"),
        ("FIARSE", "macro F1, submodels", "25.0 (n = 1)"),
    ]
    assert not any("balanced" in entry[1].text for entry in table(report, "statistics").rows[7:])


def test_rows_of_other_seeds_are_said(runs):
    said = "Rows have different seeds"
    assert said not in table(build_report([runs]), "results").note
    write_run(runs / "fiarse" / "more", replace(EXPERIMENT, method=MethodChoice("fiarse"), seed=7))
    assert said in table(build_report([runs]), "results").note


def test_bytes_until_an_accuracy(runs):
    record = read_record(runs / "fedfibos" / "seed-0")
    assert bytes_to_accuracy(record, 0.2) == 6_000_000
    assert bytes_to_accuracy(record, 0.21) == 12_000_000
    assert bytes_to_accuracy(record, 0.41) is None
    rows = [[cell.text for cell in entries] for entries in table(build_report([runs]), "communication").rows]
    assert rows == [  # the best mean is 45 %: targets 22.5, 33.75 and 40.5 %
        ["FIARSE", "12.0 ± 0.0", "12.0 ± 0.0", "not reached", "not reached"],
        ["FedFIbOS", "12.0 ± 0.0", "12.0 ± 0.0", "12.0 ± 0.0", "12.0 (1 of 2 seeds)"],
    ]


def test_a_dead_layer_is_seen(runs):
    kept = table(build_report([runs]), "kept")
    assert kept.columns == ("layer", "γ = 0.5", "γ = 0.25", "γ = 0.125", "γ = 0.0625")
    texts = [[cell.text for cell in entries] for entries in kept.rows]
    assert texts[0] == ["conv.weight", "0.500", "0.250", "0.125", "0.062"]
    assert texts[1] == ["fc_1.weight", "1.000", "1.000", "1.000", "dead"]


def test_one_evaluation_tells_no_bytes_until_an_accuracy(tmp_path):
    write_run(tmp_path / "only", replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, rounds=2)), (0.4,))
    found = table(build_report([tmp_path]), "communication")
    assert found.columns == ("method", "whole run")
