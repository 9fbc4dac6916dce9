"""The head of a run on a Ray cluster dies, or what it depends on: one line is left, and the run goes on elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from tests.simulation.test_algorithm_runs import CHANGES

from fedfibos.config.experiment import load_experiment
from fedfibos.config.study import load_study
from fedfibos.flower.launch import _descendants
from fedfibos.simulation import simulate
from fedfibos.simulation.ray_cluster import LOOPBACK, _on_loopback
from fedfibos.simulation.sweep import SweepProgress, run_study
from small_experiment import small_experiment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

KILLED = "fedfibos: the process was killed, by Ray if the Ray node on this machine died; the checkpoint is kept, "
GONE = (
    "fedfibos: the head node of the Ray cluster at {address} has not answered for 20 s (Connection refused): the "
    "checkpoint is kept, resume on another cluster or without one"
)
ROUNDS, DIES_AFTER = 60, 3
SHORT = (f"federation.rounds={ROUNDS}", "local.steps=1", f"evaluation.every={ROUNDS}", "run.checkpoint_every=1")
STUDY = """
base = "base.toml"
seeds = [3]
[all]
federation.rounds = 800
local.steps = 1
evaluation.every = 800
run.checkpoint_every = 20
[grid.method.same]
local.momentum = 0.0
[grid.method.fiarse]
method.name = "fiarse"
[grid.rate.a]
local.lr = 0.05
[grid.rate.b]
local.lr = 0.1
[grid.rate.c]
local.lr = 0.2
"""
NODE = {"node_ip_address": "127.0.0.1", "num_cpus": 1, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The experiment's file, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "e.toml").write_text(small_experiment(CHANGES))
    experiment = load_experiment(folder / "e.toml", SHORT)
    return folder / "e.toml", simulate(experiment, folder / "whole", workers=1)["params_sha256"]


@pytest.fixture
def cluster():
    """A head node without processors and a node with one, on the loopback."""
    with _on_loopback():
        found = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
        found.add_node(**NODE)
        yield found
        found.shutdown()


class Command:
    """``fedfibos run`` or ``sweep`` with ``--engine ray`` as a process, that has finished a few rounds of a run."""

    def __init__(self, words: list[str], out: Path, *options: str, run: str = ".") -> None:
        self.said, self.rounds = out.parent / "said.txt", out / run / "rounds.jsonl"
        command = [sys.executable, "-m", "fedfibos", *words, "--out", str(out), "--engine", "ray", *options]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(command, stderr=said, env={**os.environ, LOOPBACK: "0"})
        wait_for(lambda: self.rounds.exists() and self.rounds.read_text().count("\n") >= DIES_AFTER, 180)

    def ended(self, seconds: float) -> tuple[int, str]:
        """Its exit code and what it said last, once it has ended."""
        code = self.process.wait(seconds)
        wait_for(lambda: "fedfibos: " in self.said.read_text(), 10)
        return code, self.said.read_text().splitlines()[-1]


def wait_for(there, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def kill(cluster: Cluster, name: str) -> None:
    (server,) = cluster.head_node.all_processes[name]
    server.process.send_signal(signal.SIGKILL)


def goes_on(out: Path, undisturbed, **options) -> None:
    """The run has lost no round of its record, and ends with the bytes of one that nothing happened to."""
    toml, wanted = undisturbed
    before = (out / "rounds.jsonl").read_text().splitlines()[:DIES_AFTER]
    assert not (out / "final.json").exists()
    resumed = []
    final = simulate(load_experiment(toml, SHORT), out, resume=True, on_resume=resumed.extend, workers=1, **options)
    assert final["params_sha256"] == wanted
    assert len(resumed) >= DIES_AFTER
    lines = (out / "rounds.jsonl").read_text().splitlines()
    assert lines[:DIES_AFTER] == before
    assert len(lines) == ROUNDS


def test_the_command_is_killed(tmp_path, undisturbed):
    """Ray's processes that it started end too, two of them when they look for it after a minute."""
    command = Command(["run", str(undisturbed[0]), *SHORT], tmp_path / "run", "--workers", "1")
    started = _descendants(command.process.pid)
    command.process.kill()
    code, line = command.ended(10)
    assert code == -signal.SIGKILL
    assert line.startswith(KILLED)
    assert line.endswith(f"--out {tmp_path / 'run'} --resume --workers 1 --engine ray")
    assert len(started) > 3
    wait_for(lambda: not any(map(alive, started)), 150)
    goes_on(tmp_path / "run", undisturbed, engine="ray")


def alive(number: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_clusters_head_node_dies(cluster, tmp_path, undisturbed):
    command = Command(["run", str(undisturbed[0]), *SHORT], tmp_path / "run", "--address", cluster.address)
    kill(cluster, "gcs_server")
    code, line = command.ended(55)  # Ray itself ends it after 60 s
    assert (code, line) == (1, GONE.format(address=cluster.address))
    goes_on(tmp_path / "run", undisturbed)


def test_the_node_beside_it_dies(cluster, tmp_path, undisturbed):
    """Ray ends the process, and says nothing."""
    command = Command(["run", str(undisturbed[0]), *SHORT], tmp_path / "run", "--address", cluster.address)
    kill(cluster, "raylet")
    code, line = command.ended(30)
    assert code == 1
    assert line == (
        f"{KILLED}go on with: fedfibos run {undisturbed[0]} {' '.join(SHORT)} --out {tmp_path / 'run'} "
        f"--resume --engine ray --address {cluster.address}"
    )
    goes_on(tmp_path / "run", undisturbed)


def test_the_clusters_head_node_dies_in_the_middle_of_a_study(cluster, tmp_path, undisturbed):
    """The same study without Ray makes what is missing. The node may still be at one of the runs."""
    (tmp_path / "base.toml").write_text(undisturbed[0].read_text())
    (tmp_path / "study.toml").write_text(STUDY)
    study, out = load_study(tmp_path / "study.toml"), tmp_path / "out"
    command = Command(
        ["sweep", str(tmp_path / "study.toml")], out, "--address", cluster.address, run=study.runs[0].folder.as_posix()
    )
    kill(cluster, "gcs_server")
    code, line = command.ended(55)
    assert (code, line) == (1, GONE.format(address=cluster.address))
    begun = command.rounds.read_text().splitlines()[:DIES_AFTER]
    outcomes, states = [], set()

    def everything() -> bool:
        outcomes[:] = run_study(study, out, SweepProgress(), workers=1)
        states.update(outcome.state for outcome in outcomes)
        return all(outcome.final is not None for outcome in outcomes)

    wait_for(everything, 480)
    assert {"done"} <= states <= {"done", "finished", "busy"}
    assert command.rounds.read_text().splitlines()[:DIES_AFTER] == begun
    whole = run_study(study, tmp_path / "whole", SweepProgress(), workers=1)
    assert [each.final["params_sha256"] for each in outcomes] == [each.final["params_sha256"] for each in whole]
