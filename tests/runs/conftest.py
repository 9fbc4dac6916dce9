"""An experiment, and the record of a run of it."""

import pytest
from run_lines import FINAL, LINE

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.record import RunDirectory


@pytest.fixture
def experiment(experiment_file):
    return load_experiment(experiment_file('federation = { rounds = 3, capacities = "uniform" }', without=["local"]))


@pytest.fixture
def config(experiment_file) -> str:
    return to_toml(load_experiment(experiment_file("federation = { clients = 10, cohort = 5, rounds = 1 }")))


@pytest.fixture
def run(tmp_path, config):
    directory = RunDirectory.open(tmp_path / "run", config)
    directory.append_round(LINE)
    directory.finish(FINAL)
    return directory.path
