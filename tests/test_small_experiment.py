"""The experiment of the tests, and that there is one."""

import tomllib

import pytest

from fedfibos.config.experiment import load_experiment
from small_experiment import small_experiment


def test_it_is_an_experiment_and_a_change_takes_the_place_of_a_whole_key(experiment_file):
    small = load_experiment(experiment_file())
    assert (small.data.name, small.model.name, small.method.name) == ("digits", "mlp", "fedfibos")
    changed = load_experiment(experiment_file('model = { name = "cnn", options = { channels = [4] } }\nseed = 3'))
    assert changed.seed == 3
    assert changed.model.options["channels"] == [4]
    assert "hidden" not in changed.model.options
    assert (changed.federation, changed.local) == (small.federation, small.local)


def test_sections_and_keys_are_left_out():
    left = tomllib.loads(small_experiment(without=("local", "federation.capacities")))
    assert sorted(left) == ["data", "federation", "method", "model"]
    assert left["federation"] == {"clients": 5, "cohort": 2, "rounds": 2}
    with pytest.raises(KeyError):
        small_experiment(without=("federation.capacity",))
