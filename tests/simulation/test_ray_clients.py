"""Clients on a Ray cluster: the same bytes as in process, whatever the nodes and whatever happens to one.

The clusters are of three nodes on the loopback: a head without processors, and two nodes of one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster
from tests.simulation.test_algorithm_runs import CHANGES, SETTINGS
from tests.simulation.test_workers import client_data, cohort, setting, two_rounds
from tests.trackers.test_trackers import events_in

from fedfibos.config.experiment import load_experiment
from fedfibos.methods import METHODS
from fedfibos.round import federated_round
from fedfibos.simulation import WorkerError, simulate
from fedfibos.simulation.cluster import clients_on
from fedfibos.simulation.ray_clients import RayClients
from fedfibos.simulation.ray_cluster import _on_loopback, resource
from fedfibos.simulation.workers import InProcess

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NODE = {"node_ip_address": "127.0.0.1", "num_cpus": 1, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def nodes():
    """The cluster, which this process has joined as a user's program would have."""
    with _on_loopback():
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
        try:
            for _ in range(2):
                cluster.add_node(**NODE)
            ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in METHODS), ("fedfibos", {"sharing": "client"})])
def test_every_method_gives_the_bytes_of_one_process(nodes, name, settings):
    of = setting(name, **settings)
    params, state, rejected, scores = two_rounds(of, InProcess(of))
    for most in (None, 1):
        clients = RayClients(of, most)
        there, there_state, there_rejected, there_scores = two_rounds(of, clients)
        clients.close()
        assert there.sha256() == params.sha256()
        assert there_rejected == rejected == {4: "it has no training example, wanted at least 1"}
        assert all(there_state.tensors[key].equal(state.tensors[key]) for key in state.tensors)
        assert there_state.rows.clients() == state.rows.clients()
        assert all(there_state.rows.get(n).equal(state.rows.get(n)) for n in state.rows.clients())
        assert all(a.equal(b) for a, b in zip(scores, there_scores, strict=True))


@pytest.mark.parametrize("name", ["fedfibos", "fedfibos-channels"])
def test_nested_steps_give_the_bytes_of_one_process(nodes, name):
    of = setting(name)
    clients = RayClients(of)
    assert two_rounds(of, clients, 0.5)[0].sha256() == two_rounds(of, InProcess(of), 0.5)[0].sha256()
    clients.close()


@pytest.mark.parametrize("name", SETTINGS)
def test_whole_runs_and_their_resumption(nodes, name, experiment_file, tmp_path):
    experiment = load_experiment(experiment_file(CHANGES), SETTINGS[name])
    whole = simulate(experiment, tmp_path / "whole", workers=1)
    assert simulate(experiment, tmp_path / "ray", engine="ray")["params_sha256"] == whole["params_sha256"]

    def kill(record):
        if record["round"] == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(experiment, tmp_path / "killed", engine="ray", on_round=kill)
    resumed = simulate(experiment, tmp_path / "killed", resume=True, engine="ray")
    assert resumed["params_sha256"] == whole["params_sha256"]


PRIVATE = {
    sampling: (
        "privacy={clip=0.5, noise=2.0, statistic_clip=0.1, statistic_noise=4.0, delta=0.01}",
        f"privacy.sampling={sampling}",
        "run.log=tensorboard",
        "evaluation.every=2",
    )
    for sampling in ("fixed", "poisson")
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("sampling", PRIVATE)
def test_a_private_run_and_its_curves(nodes, sampling, experiment_file, tmp_path):
    """Noise, epsilon and what a tracker is told are those of the embedded engine."""
    experiment, found = load_experiment(experiment_file(CHANGES), PRIVATE[sampling]), []
    for engine in ("embedded", "ray"):
        out = tmp_path / engine
        final = simulate(experiment, out, engine=engine, workers=1)
        events = events_in(out / "tensorboard")
        del events["seconds"]
        lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        assert [line.pop("seconds") > 0 for line in lines] == 4 * [True]
        found.append((final["params_sha256"], final["epsilon"], lines, events))
    assert found[0] == found[1]
    *_, lines, events = found[0]
    assert events["epsilon"] == [(line["round"], pytest.approx(line["epsilon"])) for line in lines]
    assert len(events["evaluation/global/full"]) == 2


OWN = """
import os
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.out = nn.Flatten(), nn.Linear(64, 10)
    def forward(self, x):
        if self.training and os.path.exists("broken"):
            raise RuntimeError("the sensor is off")
        return self.out(self.flat(x))

def model(num_classes, input_shape):
    return Own()
"""


def test_a_model_beside_the_experiment_and_what_it_raises(nodes, experiment_file, tmp_path, monkeypatch):
    """It is found on the nodes, and its error is the line that the embedded engine gives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_for_ray.py").write_text(OWN)
    overrides = ("model={name='own_for_ray:model'}", "method.name=fedavg")
    experiment = load_experiment(experiment_file(CHANGES), overrides)
    here = simulate(experiment, Path("here"), workers=1)
    assert simulate(experiment, Path("there"), engine="ray")["params_sha256"] == here["params_sha256"]
    said = []

    def broken(record):
        Path("broken").touch()

    for out, options in (("a", {"workers": 1}), ("b", {"engine": "ray"})):
        Path("broken").unlink(missing_ok=True)
        with pytest.raises(WorkerError) as error:
            simulate(experiment, Path(out), on_round=broken, **options)
        said.append(str(error.value))
    assert said[0] == said[1]
    assert said[0].startswith("own_for_ray.py, line 12: RuntimeError: the sensor is off (")


def test_a_client_that_kills_its_process_is_one_line(nodes):
    def data(n):
        if n == 2:
            os._exit(7)
        return client_data(n)

    of = replace(setting(), client_data=data)
    clients = RayClients(of)
    with pytest.raises(WorkerError, match=r"^a worker process ended unexpectedly \(WorkerCrashedError: [^\n]*$"):
        two_rounds(of, clients)
    clients.close()


def test_a_node_that_dies_in_the_middle_of_a_round(nodes, tmp_path):
    """Its client runs again on the other node, to the same bytes. The tests below have one node fewer."""
    of = setting()
    params, *_ = two_rounds(of, InProcess(of))

    def data(n):
        if n == 3 and not (tmp_path / "dying").exists():
            (tmp_path / "dying").write_text(ray.get_runtime_context().get_node_id())
            time.sleep(60)
        return client_data(n)

    def kill():
        while not (tmp_path / "dying").exists() or not (tmp_path / "dying").read_text():
            time.sleep(0.05)
        doomed = (tmp_path / "dying").read_text()
        (node,) = [node for node in nodes.worker_nodes if node.node_id == doomed]
        nodes.remove_node(node, allow_graceful=False)

    clients = RayClients(replace(of, client_data=data))
    killer = threading.Thread(target=kill)
    killer.start()
    there, *_ = two_rounds(of, clients)
    killer.join()
    clients.close()
    assert there.sha256() == params.sha256()
    end = time.monotonic() + 60
    while resource("CPU") != 1:  # the head node looks every few seconds
        assert time.monotonic() < end
        time.sleep(0.5)
    assert len(nodes.worker_nodes) == 1


def test_a_program_s_own_connection_is_used_and_kept(nodes):
    with clients_on("ray", "nowhere:1"):
        pass
    assert ray.is_initialized()


def test_a_cohort_of_one_round_is_handed_out_once(nodes):
    """Parameters are in the store once, and clients that share a submodel share its place."""
    of = setting("heterofl")
    clients = RayClients(of)
    params = of.model.initial_params()
    federated_round(of.method, of.model, of.method.init(params), params, cohort(), clients.train)
    assert len(clients._submodels) == 3  # of five clients with three capacities
    assert clients._put_params(params) is clients._put_params(params)
    clients.close()
