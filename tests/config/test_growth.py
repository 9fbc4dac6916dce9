"""A cohort that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.config.growth import cohort_in
from fedfibos.simulation import build_world, simulate
from fedfibos.simulation.interrupts import Stopped

DIGITS = Path(__file__).parents[2] / "experiments" / "digits" / "fedfibos.toml"
GROWING = (
    "federation.cohort=5",
    "federation.grow_from=1",
    "federation.grow_over=3",
    "federation.rounds=5",
    "local.steps=1",
    "evaluation.every=99",
    "evaluation.submodel_clients=1",
    "run.client_records=true",
)


def test_even_growth_rounded_down():
    assert [cohort_in(t, 100, 10, 50) for t in (0, 1, 2, 5, 25, 49, 50, 1000)] == [10, 11, 13, 19, 55, 98, 100, 100]
    assert [cohort_in(t, 7, None, None) for t in (0, 9)] == [7, 7]
    assert [cohort_in(t, 4, 4, 1) for t in (0, 1)] == [4, 4]


def test_the_simulator_grows_its_cohort_and_resumes_to_the_same_bytes(tmp_path):
    experiment, lines = load_experiment(DIGITS, GROWING), []
    whole = simulate(experiment, tmp_path / "whole", workers=1, on_round=lines.append)
    assert [len(line["clients"]) for line in lines] == [1, 2, 3, 5, 5]
    with pytest.raises(Stopped):
        simulate(experiment, tmp_path / "run", workers=1, on_round=lambda record: "stop")
    resumed = simulate(experiment, tmp_path / "run", workers=1, resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert experiment.federation.cohort_label == "1 to 5"


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("federation.grow_from=3", "federation: grow_from needs grow_over beside it"),
        ("federation.extra=2", "unknown key 'federation.extra': it is of a fleet over Flower, whose devices answer at"),
        ("federation.measure_every=2", "unknown key 'federation.measure_every': it is of a fleet over Flower"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(override, line):
    with pytest.raises(ExperimentError) as error:
        load_experiment(DIGITS, [override])
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_private_run_has_one_size_of_cohort():
    private = ["method.name=fedavg", "privacy.clip=1.0", "privacy.noise=1.0", "privacy.delta=0.001"]
    with pytest.raises(ValueError, match="privacy counts with one size of the cohort in all rounds"):
        build_world(load_experiment(DIGITS, [*private, *GROWING[:-1]]))
