"""Worker processes: the same results as in process, whatever the number of workers and whatever happens to one."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace

import pytest
import torch

from fedfibos.analysis.accuracy import Trial
from fedfibos.backend import workspace
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.simulation.overlapped import Overlapped
from fedfibos.simulation.pool import WorkerPool
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import InProcess, executor
from fedfibos.submodel import full, holding
from fedfibos.training import LocalTraining
from fedfibos.types import Client

INPUT, CLASSES, CLIENTS = (1, 8, 8), 4, 5


def client_data(n: int) -> TensorData:
    generator = torch.Generator().manual_seed(n)
    size = 0 if n == 4 else 6 + 20 * (n == 0)  # client 0 is slow, client 4 has nothing
    return TensorData(
        torch.randn(size, *INPUT, generator=generator), torch.randint(CLASSES, (size,), generator=generator)
    )


def setting(name: str = "fedfibos", **settings) -> Setting:
    model = model_of(build("cnn", CLASSES, INPUT, norm="batch", seed=1), example=torch.zeros(2, *INPUT))
    return Setting(METHODS[name](**settings), model, client_data, client_data(0), client_data(1), 8)


def cohort(t: int = 0, nested: float = 0.0) -> list[Client]:
    local = LocalTraining(epochs=2, batch_size=4, absent_labels="mask", nested=nested, levels=(1.0, 0.5, 0.25))
    return [Client(n, (1.0, 0.5, 0.25)[n % 3], t, 3, local) for n in range(CLIENTS)]


def two_rounds(of: Setting, engine: InProcess | WorkerPool, nested: float = 0.0):
    params = of.model.initial_params()
    state, rejected = of.method.init(params), {}
    for t in range(2):
        state, params, report = federated_round(of.method, of.model, state, params, cohort(t, nested), engine.train)
        rejected = report.rejected
    works = [Trial(of.method.extract(of.model, state, params, c)) for c in cohort(2)]
    works.append(Trial(works[0].submodel, torch.tensor([3, 1, 2])))
    return params, state, rejected, list(engine.hits(params, works))


@pytest.mark.slow_where("3-")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in METHODS),
        ("fedfibos", {"sharing": "client"}),
        ("fedfibos-channels", {"sharing": "blend"}),
        ("fedavg", {"capacity": 0.5}),
    ],
)
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_bytes(name, settings, workers):
    of = setting(name, **settings)
    params, state, rejected, scores = two_rounds(of, InProcess(of))
    pool = WorkerPool(of, workers)
    try:
        pooled_params, pooled_state, pooled_rejected, pooled_scores = two_rounds(of, pool)
    finally:
        pool.close()
    assert params.sha256() == pooled_params.sha256()
    assert rejected == pooled_rejected == {4: "it has no training example, wanted at least 1"}
    assert all(torch.equal(state.tensors[name], pooled_state.tensors[name]) for name in state.tensors)
    assert state.rows.clients() == pooled_state.rows.clients()
    assert all(torch.equal(state.rows.get(n), pooled_state.rows.get(n)) for n in state.rows.clients())
    assert all(torch.equal(a, b) for a, b in zip(scores, pooled_scores, strict=True))


@pytest.mark.slow_where("settings1", "settings3", "settings4")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedfibos", {}),
        ("fedfibos", {"sharing": "client"}),
        ("fedfibos-channels", {"left_out": "none"}),
        ("fiarse", {}),
        ("heterofl", {}),
    ],
)
def test_nested_steps_give_the_same_bytes_in_workers_and_side_by_side(name, settings):
    of = setting(name, **settings)
    params, *_ = two_rounds(of, InProcess(of), 0.5)
    pool = WorkerPool(of, 2)
    try:
        assert two_rounds(of, pool, 0.5)[0].sha256() == params.sha256()
    finally:
        pool.close()
    assert two_rounds(of, Overlapped(of, 3), 0.5)[0].sha256() == params.sha256()
    assert two_rounds(of, InProcess(of))[0].sha256() != params.sha256()


@pytest.mark.slow_where("10-")
@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in METHODS), ("fedfibos", {"sharing": "client"})])
@pytest.mark.parametrize("width", [2, 10])
def test_clients_side_by_side_give_the_same_bytes(name, settings, width):
    """What a GPU runs, on the CPU: lanes with workspaces of their own."""
    of = setting(name, **settings)
    params, state, rejected, scores = two_rounds(of, InProcess(of))
    lanes_params, lanes_state, lanes_rejected, lanes_scores = two_rounds(of, Overlapped(of, width))
    assert params.sha256() == lanes_params.sha256()
    assert rejected == lanes_rejected == {4: "it has no training example, wanted at least 1"}
    assert all(torch.equal(state.tensors[name], lanes_state.tensors[name]) for name in state.tensors)
    assert all(torch.equal(state.rows.get(n), lanes_state.rows.get(n)) for n in state.rows.clients())
    assert all(torch.equal(a, b) for a, b in zip(scores, lanes_scores, strict=True))


@pytest.mark.parametrize(("graphs", "kind"), [(False, InProcess), (True, Overlapped)])
def test_a_gpu_takes_the_plain_path_unless_graphs_are_asked_for(graphs, kind, monkeypatch):
    """One client after another, no stream, no recorder; a device without a GPU stands for one."""
    monkeypatch.setattr(workspace, "recorder", lambda device: f"recorder of {device}")
    of = setting()
    on_device = replace(of, model=of.model.on(torch.device("meta")))
    engine = executor(on_device, 1, graphs)
    assert type(engine) is kind
    models = [lane.setting.model for lane in engine.lanes] if isinstance(engine, Overlapped) else [engine.setting.model]
    spaces = [model.on(torch.device("cpu")).workspace(full(model.layout)) for model in models]
    assert {space.recorder for space in spaces} == {"recorder of cpu" if graphs else None}


def test_a_cpu_has_no_lanes_whatever_is_asked_for():
    assert type(executor(setting(), 1, cuda_graphs=True)) is InProcess


def test_a_killed_worker_is_reported_in_one_line():
    of = setting()
    pool = WorkerPool(of, 2)
    try:
        os.kill(pool._processes[1].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"a worker process ended unexpectedly \(exit code -9"):
            two_rounds(of, pool)
    finally:
        pool.close()


def test_an_error_in_a_worker_reaches_the_caller():
    of = setting()
    pool = WorkerPool(of, 2)
    try:
        bad = Trial(
            of.method.extract(
                of.model, of.method.init(of.model.initial_params()), of.model.initial_params(), cohort()[0]
            ),
            torch.tensor([10**6]),
        )
        with pytest.raises(RuntimeError, match=r"IndexError|out of"):
            list(pool.hits(of.model.initial_params(), [bad]))
    finally:
        pool.close()


def test_workers_stop_with_their_pool():
    pool = WorkerPool(setting(), 2)
    processes = list(pool._processes)
    pool.close()
    assert not any(process.is_alive() for process in processes)


@dataclass(frozen=True)
class Noisy:
    """FIARSE whose clients add noise from torch's global stream to what they send."""

    def __getattr__(self, name):
        return getattr(METHODS["fiarse"](), name)

    def train(self, model, params, submodel, client):
        upload = METHODS["fiarse"]().train(model, params, submodel, client)
        held = holding(submodel, model.layout.size)
        return replace(upload, delta=upload.delta + 0.01 * torch.randn(model.layout.size) * held)


def test_a_method_that_draws_global_random_numbers_draws_the_same_ones_anywhere():
    of = replace(setting("fiarse"), method=Noisy())
    before = torch.get_rng_state()
    params, *_ = two_rounds(of, InProcess(of))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    pool = WorkerPool(of, 2)
    try:
        pooled, *_ = two_rounds(of, pool)
    finally:
        pool.close()
    assert pooled.sha256() == params.sha256()
