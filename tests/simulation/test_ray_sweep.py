"""A study's runs as tasks of a Ray cluster of two processors: the results of one process."""

from __future__ import annotations

import gc
import os
import signal
import warnings

import pytest

from fedfibos.config.study import load_study
from fedfibos.simulation.interrupts import StudyInterrupted
from fedfibos.simulation.ray_cluster import connected
from fedfibos.simulation.ray_sweep import run_study_on_ray
from fedfibos.simulation.sweep import SweepProgress, run_study

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

# When the first run is done more wait than two processors can have begun: some are always left for the second start.
STUDY = """
base = "base.toml"
seeds = [1, 2, 3]
[grid.method.fiarse]
method.name = "fiarse"
[grid.method.letter]
method = { name = "fedfibos", preset = "algorithm1" }
[grid.method.heterofl]
method.name = "heterofl"
[grid.method.none]
federation.clients = 3000
method.name = "fedavg"
"""


@pytest.fixture(scope="module")
def node():
    with connected(None, 2):
        yield
    with warnings.catch_warnings():  # Ray leaves its ended processes for the collector to find
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def study(experiment_file, tmp_path):
    experiment_file("federation.rounds = 20", name="base.toml")
    (tmp_path / "study.toml").write_text(STUDY)
    return load_study(tmp_path / "study.toml")


class Log(SweepProgress):
    def __init__(self, interrupt=False):
        self.finished, self.interrupt = [], interrupt

    def finish(self, outcome):
        self.finished.append((outcome.run.folder.as_posix(), outcome.state))
        if self.interrupt and outcome.state == "done":
            self.interrupt = False  # a second one would stop at once
            os.kill(os.getpid(), signal.SIGINT)


def digests(outcomes):
    return [outcome.final and outcome.final["params_sha256"] for outcome in outcomes]


def test_a_study_gives_the_results_of_one_process_and_goes_on_after_ctrl_c(node, study, tmp_path):
    whole = run_study(study, tmp_path / "whole", SweepProgress(), workers=1)
    log = Log(interrupt=True)
    with pytest.raises(StudyInterrupted, match=r"^interrupted; \d runs? under way finished a round and wrote"):
        run_study_on_ray(study, tmp_path / "ray", log)
    assert "done" in {state for _, state in log.finished}
    log = Log()
    outcomes = run_study_on_ray(study, tmp_path / "ray", log)
    assert digests(outcomes) == digests(whole)
    assert {state for _, state in log.finished} == {"done", "failed", "finished"}
    assert [outcome.reason for outcome in outcomes] == [outcome.reason for outcome in whole]
    assert sum("3000" in (outcome.reason or "") for outcome in outcomes) == 3


def test_a_run_that_no_node_has_room_for_is_refused(node, study, tmp_path):
    with pytest.raises(
        ValueError, match=r"^each run needs 3 processors of one node, the Ray cluster's largest node has 2$"
    ):
        run_study_on_ray(study, tmp_path, SweepProgress(), workers=3)
    with pytest.raises(ValueError, match=r"^each run needs 1 GPU of one node, the Ray cluster's largest node has 0$"):
        run_study_on_ray(study, tmp_path, SweepProgress(), device="cuda")
