"""Participants that never answer: who they are depends on nothing but seed, round and client."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.local import LocalTrainingError, local_training
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.round import sample
from fedfibos.simulation import simulate
from fedfibos.simulation.dropout import NO_ANSWER, draw_silent, leaving_out
from fedfibos.training import LocalTraining
from fedfibos.types import Client

OVERRIDES = [
    "federation.rounds=6",
    "federation.clients=12",
    "federation.cohort=5",
    "local.steps=2",
    "evaluation.every=3",
]


def test_about_as_many_are_silent_as_the_rate_says():
    cohort = list(range(1000))
    assert draw_silent(cohort, 0.0, 0, 0) == frozenset()
    for rate in (0.1, 0.5, 0.9):
        assert len(draw_silent(cohort, rate, 0, 0)) == pytest.approx(1000 * rate, abs=50)
    assert draw_silent(cohort, 0.5, 0, 0) != draw_silent(cohort, 0.5, 0, 1) != draw_silent(cohort, 0.5, 1, 0)
    assert draw_silent(cohort, 0.1, 0, 0) < draw_silent(
        cohort, 0.5, 0, 0
    )  # those that a smaller rate silences are among them


def test_whether_a_client_answers_does_not_depend_on_the_others():
    every, some = range(100), [3, 50, 51]
    assert draw_silent(some, 0.3, 0, 4) == draw_silent(every, 0.3, 0, 4) & set(some)


def test_at_least_one_answers():
    for t in range(50):
        assert len(draw_silent([7], 0.99, 0, t)) == 0
        assert len(draw_silent([1, 2, 3], 0.99, 0, t)) <= 2


@pytest.mark.parametrize("ahead", [0, 1, 99])
def test_outcomes_come_in_the_order_of_the_clients(ahead):
    """However far an executor reads ahead of what it yields."""
    clients = [Client(n, 1.0, 0, 0, LocalTraining()) for n in range(8)]
    absent = frozenset({0, 3, 4, 7})

    def run(params, jobs):
        queue, waiting = iter(jobs), []
        for client, _ in queue:
            waiting.append(client)
            if len(waiting) > ahead:
                yield waiting.pop(0), "trained"
        yield from ((client, "trained") for client in waiting)

    found = list(leaving_out(run, absent)(None, [(client, None) for client in clients]))
    assert [client.id for client, _ in found] == list(range(8))
    assert {client.id for client, outcome in found if outcome == NO_ANSWER} == absent


@pytest.fixture
def experiment(request):
    path = request.config.rootpath / "experiments" / "digits" / "fedfibos.toml"
    return lambda *overrides: load_experiment(path, [*OVERRIDES, *overrides])


def lines(run):
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_a_run_with_dropout(experiment, tmp_path):
    """They cost the bytes down, count in nothing, and are no rejections; the cohorts are those without dropout."""
    warnings: list[str] = []
    whole = simulate(experiment(), tmp_path / "whole", workers=1)
    some = experiment("federation.dropout=0.4")
    final = simulate(some, tmp_path / "some", workers=1, on_warning=warnings.append)
    ours, all_ = lines(tmp_path / "some"), lines(tmp_path / "whole")
    assert not any("participants" in line for line in [*ours, *all_])  # the seed gives them back
    assert 0 < sum(len(line["silent"]) for line in ours) < 30
    assert "silent" not in all_[0]
    assert final["rejected"] == 0
    assert final["silent"] == sum(len(line["silent"]) for line in ours)
    assert "silent" not in whole
    assert not any("rejected" in text for text in warnings)
    assert ours[0]["bytes"]["down"] == all_[0]["bytes"]["down"]  # the first submodels are the same
    assert final["bytes"]["up"] < whole["bytes"]["up"]
    assert final["params_sha256"] != whole["params_sha256"]
    again = simulate(some, tmp_path / "again", workers=2)
    assert again["params_sha256"] == final["params_sha256"]


def test_the_round_is_that_of_those_that_answer(experiment, tmp_path, monkeypatch):
    """With per-client weights equal, a silent client is as if it had not been drawn."""
    some = experiment("federation.dropout=0.4", "federation.rounds=1")
    final = simulate(some, tmp_path / "some", workers=1)
    (line,) = lines(tmp_path / "some")
    answered = sorted(set(sample(12, 5, some.seed, 0)) - set(line["silent"]))
    assert 0 < len(answered) < 5
    monkeypatch.setattr("fedfibos.simulation.population.sample", lambda *_: answered)
    fewer = replace(some, federation=replace(some.federation, dropout=0.0, cohort=len(answered)))
    assert simulate(fewer, tmp_path / "fewer", workers=1)["params_sha256"] == final["params_sha256"]


@pytest.mark.parametrize("rate", ["1.0", "-0.1", "nan", "'half'"])
def test_impossible_rates_are_one_line(experiment, rate):
    with pytest.raises(ExperimentError, match=r"federation\.dropout") as error:
        experiment(f"federation.dropout={rate}")
    assert "\n" not in str(error.value)


def test_who_fails_in_training_is_not_silent(experiment, tmp_path, monkeypatch):
    """Told apart by who they are: a client may fail with the very words of one that does not answer."""

    def failing(self, model, params, submodel, client):
        if client.id in (3, 7):
            raise LocalTrainingError(NO_ANSWER)
        return local_training(model, params, submodel, client)

    monkeypatch.setattr(FedFIbOS, "train", failing)
    some = experiment("federation.dropout=0.3")
    simulate(some, tmp_path, workers=1)
    for line in lines(tmp_path):
        took_part = sample(12, 5, some.seed, line["round"] - 1)
        failed = {3, 7} & set(took_part)
        assert line.get("participants") == (took_part if line["rejected"] else None)
        assert set(map(int, line["rejected"])) == failed - set(line["silent"])
    assert any(line["rejected"] for line in lines(tmp_path))
