"""A round's numbers by name: which places there are, which way is better, which round is best."""

from __future__ import annotations

import pytest

from fedfibos.config.watched import checked_metric
from fedfibos.runs.best import best_round, lower_is_better, value_of


def line(number, full=0.5, local=0.25, loss=1.0, **more):
    evaluation = {
        "global": {"full": full, "submodels": {"0.25": full / 2, "mean": full / 2}},
        "local": {"mean": local, "by_capacity": {"0.25": local}, "adjusted": {"mean": 0.75, "by_capacity": {}}},
        "macro_f1": {"full": 0.125, "submodels": {"mean": 0.0625}},
        **more,
    }
    return {"round": number, "loss": loss, "evaluation": evaluation}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("loss", 1.0),
        ("global_accuracy.full", 0.5),
        ("global_accuracy.submodels.mean", 0.25),
        ("global_accuracy.submodels.0.25", 0.25),
        ("local_accuracy.mean", 0.25),
        ("local_accuracy.by_capacity.0.25", 0.25),
        ("local_accuracy.adjusted.mean", 0.75),
        ("macro_f1.submodels.mean", 0.0625),
        ("local_accuracy.by_capacity.0.5", None),
    ],
)
def test_names_are_those_of_the_results(path, value):
    assert checked_metric(path) == path
    assert value_of(line(1), path) == value


def test_a_round_without_an_evaluation_has_none():
    assert value_of({"round": 1, "loss": 2.0}, "local_accuracy.mean") is None
    assert value_of({"round": 1, "loss": 2.0}, "loss") == 2.0
    assert value_of({"round": 1, "skipped_round": "no usable upload"}, "loss") is None


def test_the_best_is_the_first_of_equal_ones():
    rounds = [line(1, 0.5), line(2, 0.75), {"round": 3, "loss": 0.1}, line(4, 0.75), line(5, 0.25)]
    assert best_round(rounds, "global_accuracy.full") == 2
    assert best_round(rounds, "loss") == 3
    assert best_round(rounds[2:3], "global_accuracy.full") is None


def test_a_metric_says_which_way_is_better():
    metrics = {"mae": {"better": "lower", "share": False}, "r2": {"better": "higher", "share": False}}
    rounds = [line(n, full, metrics=metrics, r2={"full": -full}) for n, full in ((1, 3.0), (2, 1.0), (3, 2.0))]
    assert lower_is_better(rounds[0], "global_mae.full")
    assert best_round(rounds, "global_mae.full") == 2
    assert best_round(rounds, "r2.full") == 2
    assert best_round(rounds, "local_mae.mean") == 1
    with pytest.raises(ValueError, match=r"checkpoint.best must be of .*'global_mae'.*got 'global_accuracy'"):
        best_round(rounds, "global_accuracy.full")


@pytest.mark.parametrize("path", ["accuracy", "local_accuracy", "global_accuracy.mean", "local_accuracy.full", ""])
def test_what_can_be_no_number_is_refused_when_it_is_read(path):
    with pytest.raises(ValueError, match="a number of a round must be loss, or a metric's"):
        checked_metric(path)
