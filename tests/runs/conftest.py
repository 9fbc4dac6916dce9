"""An experiment, and the record of a run of it."""

import pytest
from run_lines import FINAL, LINE

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.record import RunDirectory


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[model]\nname = "mlp"\n[federation]\nclients = 10\ncohort = 5\nrounds = 3\n[method]\nname = "fedfibos"\n'
    )
    return load_experiment(path)


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[model]\nname = "mlp"\n[federation]\nclients = 10\ncohort = 5\nrounds = 1\n[method]\nname = "fedavg"\n'
    )
    return to_toml(load_experiment(path))


@pytest.fixture
def run(tmp_path, config):
    directory = RunDirectory.open(tmp_path / "run", config)
    directory.append_round(LINE)
    directory.finish(FINAL)
    return directory.path
