"""What a record says of its metrics, in words and numbers."""

from __future__ import annotations

import pytest

from fedfibos.runs.measures import ACCURACY, Measure, measures_of

MSE = Measure("mse", "lower", share=False)


def test_records_that_do_not_say_are_of_classification():
    assert [measure.name for measure in measures_of({})] == ["accuracy", "balanced_accuracy", "macro_f1"]
    assert measures_of({})[0] == ACCURACY
    found = measures_of({"metrics": {"mse": {"better": "lower", "share": False}}})
    assert found == (MSE,)


@pytest.mark.parametrize(
    ("measure", "heading"),
    [
        (ACCURACY, "accuracy in %"),
        (MSE, "mean squared error (lower is better)"),
        (Measure("r2", "higher", share=False), "R²"),
        (Measure("iou sea_ice"), "IoU sea_ice in %"),
        (Measure("token_accuracy"), "token accuracy in %"),
    ],
)
def test_headings_have_the_unit_and_the_unusual_direction(measure, heading):
    assert measure.heading == heading


def test_keys_values_and_the_best_of_some():
    assert (MSE.global_key, MSE.local_key) == ("global_mse", "local_mse")
    assert (ACCURACY.text(0.8125), MSE.text(0.812512), MSE.text(None)) == ("81.2 %", "0.8125", "–")
    assert (ACCURACY.best([0.1, 0.3]), MSE.best([0.1, 0.3])) == (0.3, 0.1)
    assert (ACCURACY.sign, MSE.sign, ACCURACY.scale, MSE.scale) == (1, -1, 100.0, 1.0)
