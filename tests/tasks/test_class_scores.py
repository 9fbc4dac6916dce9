"""Balanced accuracy, macro F1 and the majority's share, by hand; and that every run records them."""

from __future__ import annotations

import json

import pytest
import torch

from fedfibos.config.experiment import load_experiment
from fedfibos.runs.summary import summarise
from fedfibos.simulation import simulate
from fedfibos.tasks.class_scores import balanced_accuracy, macro_f1, majority_share


@pytest.mark.parametrize(
    ("predicted", "labels", "balanced", "f1", "majority"),
    [
        ([0] * 10, [0] * 9 + [1], 1 / 2, 9 / 19, 0.9),  # F1 of class 0: 2·9 / (9 + 10); of class 1: 0
        ([0, 0, 1, 1], [0, 1, 1, 1], (1 + 2 / 3) / 2, (2 / 3 + 4 / 5) / 2, 3 / 4),
        ([0, 1, 2], [0, 1, 2], 1.0, 1.0, 1 / 3),
        ([2, 2, 2, 2], [0, 0, 1, 1], 0.0, 0.0, 1 / 2),  # class 2 has no example: it is no class of the mean
        ([0, -1, 7, 7], [0, 0, 7, 7], 3 / 4, (2 / 3 + 1) / 2, 1 / 2),  # -1: no finite logits
    ],
)
def test_by_hand(predicted, labels, balanced, f1, majority):
    given, true = torch.tensor(predicted, dtype=torch.int32), torch.tensor(labels)
    assert balanced_accuracy(given, true) == pytest.approx(balanced, abs=1e-15)
    assert macro_f1(given, true) == pytest.approx(f1, abs=1e-15)
    assert majority_share(true) == majority


def test_as_scikit_learn_has_them():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(7, (500,), generator=generator).clamp(max=4)
    predicted = torch.where(torch.rand(500, generator=generator) < 0.6, labels, labels.roll(1))
    assert balanced_accuracy(predicted, labels) == pytest.approx(metrics.balanced_accuracy_score(labels, predicted))
    assert macro_f1(predicted, labels) == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))


def test_every_run_records_them(experiment_file, tmp_path):
    final = simulate(load_experiment(experiment_file("evaluation.every = 1")), tmp_path / "run", workers=1)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        found = line["evaluation"]
        assert found["majority_share"] == final["majority_share"]
        assert found["majority_share"] == 47 / 360
        for score in ("balanced_accuracy", "macro_f1"):
            assert found[score].keys() == found["global"].keys() == {"full", "submodels"}
            assert found[score]["submodels"].keys() == {"1.0", "0.5", "mean"}
        assert 0 < abs(found["balanced_accuracy"]["full"] - found["global"]["full"]) < 0.1  # of classes nearly equal
        assert 0 < found["macro_f1"]["full"] <= 1
    last = lines[-1]["evaluation"]
    assert final["balanced_accuracy"]["full"]["last"] == last["balanced_accuracy"]["full"]
    assert final["macro_f1"]["submodels"]["0.5"]["last"] == last["macro_f1"]["submodels"]["0.5"]
    for line in lines:  # records of before
        for key in ("balanced_accuracy", "macro_f1", "majority_share"):
            del line["evaluation"][key]
    assert "macro_f1" not in summarise(lines)
