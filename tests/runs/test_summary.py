"""The summary of a run, by hand."""

import pytest
from run_lines import line

from fedfibos.runs.summary import summarise


def evaluated(number, full, submodels, local, by_capacity):
    evaluation = {
        "global": {"full": full, "submodels": submodels},
        "local": {"mean": local, "by_capacity": by_capacity},
    }
    return line(number, evaluation=evaluation)


def test_summary_of_three_evaluations_by_hand():
    rounds = [
        evaluated(1, 0.5, {"1.0": 0.5, "0.5": 0.1, "mean": 0.3}, 0.25, {"1.0": 0.5, "0.5": None}),
        line(2, rejected={"3": "NaN loss", "4": "NaN loss"}),
        evaluated(3, 0.75, {"1.0": 0.75, "0.5": 0.25, "mean": 0.5}, 0.75, {"1.0": 0.75, "0.5": 0.5}),
        evaluated(4, 0.25, {"1.0": 0.25, "0.5": 0.25, "mean": 0.25}, 0.5, {"1.0": 0.25, "0.5": None}),
    ]
    assert summarise(rounds) == {
        "global_accuracy": {
            "full": {"last": 0.25, "last20": 0.5, "best": 0.75},
            "submodels": {
                "1.0": {"last": 0.25, "last20": 0.5, "best": 0.75},
                "0.5": {"last": 0.25, "last20": pytest.approx(0.2), "best": 0.25},
                "mean": {"last": 0.25, "last20": pytest.approx(0.35), "best": 0.5},
            },
        },
        "local_accuracy": {
            "mean": {"last": 0.5, "last20": 0.5, "best": 0.75},
            "by_capacity": {
                "1.0": {"last": 0.25, "last20": 0.5, "best": 0.75},
                "0.5": {"last": 0.5, "last20": 0.5, "best": 0.5},  # the one evaluation that has it
            },
        },
        "bytes": {"down": 40, "up": 12},
        "seconds": 2.0,
        "rejected": 2,
    }


def test_last20_is_the_mean_of_the_last_twenty_evaluations_not_rounds():
    rounds = []
    for number in range(1, 51):
        accuracy = number / 100
        if number % 2 == 0:  # evaluations at 2, 4, ..., 50; the last twenty are 12, 14, ..., 50
            rounds.append(evaluated(number, accuracy, {"mean": accuracy}, accuracy, {}))
        else:
            rounds.append(line(number))
    curve = summarise(rounds)["global_accuracy"]["full"]
    assert curve == {"last": 0.5, "last20": pytest.approx(0.31), "best": 0.5}


def test_a_run_without_an_evaluation_has_no_summary():
    with pytest.raises(ValueError, match="at least one evaluated round, got none in 1 rounds"):
        summarise([line(1)])
